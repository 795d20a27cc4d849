//go:build unix

package agent_test

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// childFileSize is the largest file that a child may write, in bytes.
const childFileSize = "AGENT_ATTACK_FILE_SIZE"

// limitFiles lets writes of this process fail where a disk would be full.
func limitFiles() error {
	size, err := strconv.ParseUint(os.Getenv(childFileSize), 10, 64)
	if err != nil {
		return nil //nolint:nilerr // no limit
	}
	signal.Ignore(syscall.SIGXFSZ)
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: size})
}

// room is more than a call needs in the wallet's file, in bytes.
const room = 40 << 10

// TestFullDisk: where the wallet's file cannot be written nothing is paid, what was paid before is finished, and it goes on when there is
// room again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	x := newAttack(t, 1_000_000)
	x.Answer(nil)
	ledger, err := filepath.Glob(filepath.Join(x.folder, "wallets", "*", "wallet.db"))
	if err != nil || len(ledger) != 1 {
		t.Fatal(ledger, err)
	}
	before := x.charged()
	done := map[string]bool{}
	step := int64(room / testkit.Times(30))
	for extra := int64(0); extra < room; extra += step {
		stat, err := os.Stat(ledger[0])
		testkit.NoError(t, err)
		p := x.start(childFileSize + "=" + strconv.FormatInt(stat.Size()+extra, 10))
		content := fmt.Sprintf("message %d", extra)
		made, ok := p.ask(content)
		if ok && made.Done {
			done[content] = true
		} else if ok && !strings.Contains(made.Error, "disk") && !strings.Contains(made.Error, "not known yet") {
			t.Errorf("with %d bytes: %+v, want an error that says why", extra, made)
		}
		p.kill()
	}
	if len(done) == 0 {
		t.Error("no call was done with the most room")
	}
	p := x.start()
	for extra := int64(0); extra < room; extra += step {
		content := fmt.Sprintf("message %d", extra)
		if done[content] {
			continue
		}
		if made, ok := p.ask(content); !ok || !made.Done {
			t.Errorf("with room again: %+v", made)
		}
		done[content] = true
	}
	p.kill()
	x.check(done, before)
}
