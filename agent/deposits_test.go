package agent_test

import (
	"fmt"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// initialized returns a wallet that parley init made: with the limit of a new wallet and an account.
func (w *world) initialized(username string) wallet {
	w.T.Helper()
	of := w.wallet()
	if _, err := w.agreed(of).Register(w.T.Context(), username, ""); err != nil {
		w.T.Fatal(err)
	}
	return of
}

// fromChannel makes a call and reports whether it was paid from the payment channel.
func (w *world) fromChannel(a *agent.Agent, query string) bool {
	w.T.Helper()
	const exact = "SELECT count(*) FROM payments WHERE scheme = 'exact'"
	before := w.Count(exact)
	if _, err := a.Call(w.T.Context(), "searchAgents", map[string]any{"query": query}, agent.CallOptions{}); err != nil {
		w.T.Error(err)
	}
	return w.Count(exact) == before
}

// empty refunds the payment channel, as everybody can.
func (w *world) empty(of wallet) {
	w.T.Helper()
	if refunded, err := w.open(of).Refund(w.T.Context()); err != nil || refunded == 0 {
		w.T.Fatal(refunded, err)
	}
}

// TestFirstDay: after parley init the calls of the first day are paid from the payment channel.
func TestFirstDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice := w.open(w.initialized("alice"))
	for i := range 8 {
		if !w.fromChannel(alice, fmt.Sprint("word", i)) {
			t.Errorf("call %d is paid with a transfer", i+1)
		}
	}
}

// TestEmptiedChannel: whatever became of a deposit, another one counts in addition. Without room for one, calls are paid with transfers.
func TestEmptiedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	of := w.initialized("alice")
	w.empty(of)
	alice := w.open(of)
	if w.fromChannel(alice, "weather") {
		t.Error("another deposit is made")
	}
	testkit.NoError(t, alice.Ledger().SetLimit(t.Context(), 3*testkit.Dollar))
	if !w.fromChannel(alice, "rain") {
		t.Error("no other deposit is made")
	}
}

// TestFailedDeposit: a deposit that the signer does not sign uses nothing of the limit.
func TestFailedDeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	of := w.wallet()
	w.registerAs(of, "alice") // with a limit of 10 USD
	w.empty(of)
	broken := w.open(wallet{brokenSigner{of.signer, func() {}}, of.folder})
	before, err := broken.Ledger().Left(t.Context())
	testkit.NoError(t, err)
	if err := call1(t, broken); err == nil {
		t.Error("a call without a signature succeeded")
	}
	if after, err := broken.Ledger().Left(t.Context()); err != nil || after != before {
		t.Errorf("%d are left for deposits, want %d as before (%v)", after, before, err)
	}
}
