package devnet

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const stranger = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"

// nonceForm matches nonces and the hashes of transactions.
var nonceForm = regexp.MustCompile(`^0x[0-9a-f]{64}$`)

// nonce returns a different nonce for each number.
func nonce(n int) string { return fmt.Sprintf("0x%064x", n) }

func openLedger(t *testing.T, dir string) *Ledger {
	t.Helper()
	ledger, err := OpenLedger(dir)
	noError(t, err)
	t.Cleanup(func() { _ = ledger.Close() })
	return ledger
}

func wantBalance(t *testing.T, ledger *Ledger, address string, want uint64) {
	t.Helper()
	if got := ledger.Balance(address); got != want {
		t.Errorf("the balance of %s is %d, want %d", address, got, want)
	}
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, "")
	alice := Accounts()[0].Address
	noError(t, ledger.Transfer(alice, Payee, 5000, nonce(1), "0x01"))
	wantBalance(t, ledger, alice, genesisBalance-5000)
	wantBalance(t, ledger, strings.ToUpper(Payee[2:]), 0) // not an address
	wantBalance(t, ledger, strings.ToLower(Payee), 5000)
	if !ledger.Used(strings.ToLower(alice), nonce(1)) || ledger.Used(alice, nonce(2)) || ledger.Used(Payee, nonce(1)) {
		t.Error("not exactly the one authorization is used")
	}
	if err := ledger.Transfer(strings.ToLower(alice), Payee, 5000, nonce(1), "0x02"); !errors.Is(err, errAuthorizationUsed) {
		t.Errorf("the second transfer says %v, want that the authorization is used", err)
	}
	if err := ledger.Transfer(alice, Payee, genesisBalance, nonce(3), "0x03"); !errors.Is(err, errInsufficientBalance) {
		t.Errorf("a transfer of too much says %v, want that the balance is too small", err)
	}
	if err := ledger.Transfer(alice, Payee, genesisBalance, nonce(1), "0x04"); !errors.Is(err, errAuthorizationUsed) {
		t.Errorf("a used authorization of too much says %v, want used before balance", err)
	}
	if err := ledger.Transfer(alice, alice, genesisBalance-5000, nonce(4), "0x05"); err != nil {
		t.Errorf("a transfer to oneself: %v", err)
	}
	wantBalance(t, ledger, alice, genesisBalance-5000)
	wantBalance(t, ledger, Payee, 5000)
	if ledger.Mint(stranger, math.MaxUint64) == nil {
		t.Error("minting too much succeeds, want an error")
	}
}

// TestConcurrentTransfers repeats a race of eight transfers by one authorization, until a ledger without its lock would fail.
func TestConcurrentTransfers(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, t.TempDir())
	alice := Accounts()[0].Address
	for round := range 1000 {
		var done atomic.Int32
		var group sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			group.Go(func() {
				<-start
				if ledger.Transfer(alice, Payee, 1, nonce(round), "0x01") == nil {
					done.Add(1)
				}
			})
		}
		close(start)
		group.Wait()
		if n := done.Load(); n != 1 {
			t.Fatalf("%d of 8 transfers by one authorization succeeded, want 1", n)
		}
	}
	wantBalance(t, ledger, Payee, 1000)
}

func TestLedgerSurvives(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "folder")
	alice, bob := Accounts()[0].Address, Accounts()[1].Address
	first := openLedger(t, dir)
	for _, err := range []error{
		first.Mint(stranger, math.MaxUint32),
		first.Transfer(alice, Payee, 5000, nonce(1), "0x01"),
		first.Cancel(bob, nonce(2)),
	} {
		noError(t, err)
	}
	// No Close: a killed process does not close either.
	second := openLedger(t, dir)
	wantBalance(t, second, alice, genesisBalance-5000)
	wantBalance(t, second, Payee, 5000)
	wantBalance(t, second, stranger, math.MaxUint32)
	if !second.Used(alice, nonce(1)) || !second.Used(bob, nonce(2)) || second.Used(bob, nonce(1)) {
		t.Error("after a restart not exactly the used and the cancelled authorization are closed")
	}
	if err := second.Transfer(alice, Payee, 5000, nonce(1), "0x02"); !errors.Is(err, errAuthorizationUsed) {
		t.Errorf("a transfer from before the restart says %v, want that the authorization is used", err)
	}
}

func TestTornLastLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, journalName)
	alice := Accounts()[0].Address
	ledger := openLedger(t, dir)
	for n := range 2 {
		noError(t, ledger.Transfer(alice, Payee, 5000, nonce(n), "0x01"))
	}
	noError(t, ledger.Close())
	whole, err := os.ReadFile(path)
	noError(t, err)
	half := len(whole) / 2 // the first of two equally long lines
	for torn := half; torn < len(whole); torn++ {
		noError(t, os.WriteFile(path, whole[:torn], 0o600))
		again := openLedger(t, dir)
		wantBalance(t, again, Payee, 5000)
		if err := again.Transfer(alice, Payee, 5000, nonce(1), "0x01"); err != nil {
			t.Fatalf("transfer after a torn line of %d bytes: %v", torn-half, err)
		}
		_ = again.Close()
		wantBalance(t, openLedger(t, dir), Payee, 10000)
	}
}

func TestDamagedJournal(t *testing.T) {
	t.Parallel()
	alice := strings.ToLower(Accounts()[0].Address)
	good := `{"kind":"transfer","from":"` + alice + `","to":"` + strings.ToLower(Payee) + `","amount":"5000","nonce":"` + nonce(1) + `"}` +
		"\n"
	for name, line := range map[string]string{
		"junk":                 "junk",
		"nothing":              "",
		"zero bytes":           "\x00\x00\x00",
		"an unknown kind":      `{"kind":"burn","amount":"1"}`,
		"an unknown member":    `{"kind":"mint","to":"` + alice + `","amount":"1","x":1}`,
		"a number":             `{"kind":"mint","to":"` + alice + `","amount":-1}`,
		"a used authorization": strings.TrimSpace(good),
		"more than is there":   strings.Replace(strings.TrimSpace(good), `"5000"`, `"18446744073709551615"`, 1),
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, journalName)
		noError(t, os.WriteFile(path, []byte(good+line+"\n"+good), 0o600))
		_, err := OpenLedger(dir)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("a journal with %s in the middle says %v, want an error naming %s and line 2", name, err, path)
		}
	}
	if _, err := OpenLedger(filepath.Join(t.TempDir(), "file\x00")); err == nil {
		t.Error("a ledger in an impossible folder opens, want an error")
	}
}

func TestLedgerStopsWhenItCannotWrite(t *testing.T) {
	t.Parallel()
	ledger := openLedger(t, t.TempDir())
	alice := Accounts()[0].Address
	_ = ledger.journal.Close() // a disk that fails
	for range 2 {
		if err := ledger.Transfer(alice, Payee, 5000, nonce(1), "0x01"); err == nil || errors.Is(err, errAuthorizationUsed) {
			t.Errorf("a transfer that cannot be written says %v, want an error", err)
		}
	}
	wantBalance(t, ledger, Payee, 0)

	closed := openLedger(t, "")
	noError(t, closed.Close())
	if err := closed.Mint(alice, 1); err == nil {
		t.Error("a closed ledger mints")
	}
	wantBalance(t, closed, alice, genesisBalance)
}
