//go:build unix

package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// stateAttack deletes, shortens, restores and exchanges the files of a wallet between its calls.
type stateAttack struct {
	*attack
	away    string   // the folder of the other witness, which stays
	copies  []string // of the folder, the oldest first
	made    int      // calls that were sent
	refused int      // calls whose state was refused
}

// TestAttackOnState: whatever happens to the files in an agent's folder between its calls, it pays at most its limit unless a person
// accepts them, and with the newest files it goes on.
func TestAttackOnState(t *testing.T) {
	t.Parallel()
	eachScheme(t, func(t *testing.T, settings ...func(*server.Config)) {
		const affordable = 6 // as many as there are rounds at least: the first call of each is made
		x := &stateAttack{attack: newAttack(t, affordable*attackPrice, settings...), away: t.TempDir()}
		x.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			x.signed.note(r.Header.Get(x402.HeaderPaymentSignature))
			next.ServeHTTP(rw, r)
		})
		before := x.charged()
		x.copyFolder()
		for range testkit.Times(24) {
			x.call()
			x.damage()
			x.call()
			x.replace(x.copies[len(x.copies)-1], ".")
		}
		if paid := x.charged() - before; paid != affordable*attackPrice || x.made != affordable || x.refused == 0 {
			t.Errorf("%d was paid in %d calls, want %d in %d; %d were refused", paid, x.made, affordable*attackPrice, affordable, x.refused)
		}
		most := uint64(affordable * attackPrice)
		if settings != nil {
			most += before // a voucher is for all that its payment channel has paid
		}
		if payable, _ := x.signed.sum(t); payable > most {
			t.Errorf("what was signed is worth %d, want at most %d", payable, most)
		}
		t.Logf("%d calls were refused because of their state", x.refused)
	})
}

// call sends a message as a new process does, and keeps a copy of the folder if it was sent.
func (x *stateAttack) call() {
	x.t.Helper()
	secrets, err := agent.OpenSecrets(agent.PlaceFile, x.folder, nil)
	testkit.NoError(x.t, err)
	a, err := agent.Open(agent.Settings{Folder: x.folder, Signer: mustSigner(x.t, x.key), Secrets: secrets, Witness: x.away,
		Networks: []x402.Network{testkit.PlayMoney}, Transport: &http.Transport{}})
	if err == nil {
		defer a.Close()
		var result *agent.Result
		if result, err = a.Call(x.t.Context(), "sendGroupMessage", map[string]any{"chat_id": x.group, "content": fmt.Sprint(rand.Int())},
			agent.CallOptions{Patience: 10 * time.Second}); err == nil {
			x.made++
			testkit.NoError(x.t, a.Seen(x.t.Context(), result))
			x.copyFolder()
			return
		}
	}
	if _, changed := errors.AsType[*agent.StateError](err); changed {
		x.refused++
	} else if _, over := errors.AsType[*agent.LimitError](err); !over && !errors.Is(err, agent.ErrNoAccount) {
		x.t.Error(err)
	}
}

// damage changes one of the files or folders.
func (x *stateAttack) damage() {
	names := []string{".", "wallets", "witness.json"}
	testkit.NoError(x.t, filepath.WalkDir(x.folder, func(path string, found fs.DirEntry, err error) error {
		if filepath.Base(path) == "wallet.db" {
			name, _ := filepath.Rel(x.folder, path)
			names = append(names, name, name)
		}
		return err
	}))
	name := names[rand.IntN(len(names))]
	path := filepath.Join(x.folder, name)
	info, err := os.Stat(path)
	testkit.NoError(x.t, err)
	switch rand.IntN(3) {
	case 0:
		testkit.NoError(x.t, os.RemoveAll(path))
		testkit.NoError(x.t, os.MkdirAll(x.folder, 0o700))
	case 1:
		if !info.IsDir() {
			testkit.NoError(x.t, os.Truncate(path, rand.Int64N(info.Size())))
			return
		}
		fallthrough
	default:
		x.replace(x.copies[rand.IntN(len(x.copies))], name)
	}
}

// copyFolder keeps a copy of the folder.
func (x *stateAttack) copyFolder() {
	folder := filepath.Join(x.t.TempDir(), "copy")
	testkit.NoError(x.t, os.CopyFS(folder, os.DirFS(x.folder)))
	x.copies = append(x.copies, folder)
}

// replace replaces a file or a folder with the one of a copy.
func (x *stateAttack) replace(from, name string) {
	to, from := filepath.Join(x.folder, name), filepath.Join(from, name)
	testkit.NoError(x.t, os.RemoveAll(to))
	info, err := os.Stat(from)
	testkit.NoError(x.t, err)
	if info.IsDir() {
		testkit.NoError(x.t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	content, err := os.ReadFile(from)
	testkit.NoError(x.t, errors.Join(err, os.WriteFile(to, content, 0o600)))
}
