package agent_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// shifted is a blockchain whose clock is ahead, and that shows more in each payment channel than is there.
type shifted struct {
	*x402.Chain

	ahead time.Duration
	more  uint64
}

func (s shifted) Channel(ctx context.Context, id string) (x402.Channel, time.Time, error) {
	channel, at, err := s.Chain.Channel(ctx, id)
	channel.Balance += s.more
	return channel, at.Add(s.ahead), err
}

// initialized returns a wallet that parley init made: with the limit of a new wallet and an account.
func (w *world) initialized(username string) wallet {
	w.T.Helper()
	of := w.wallet()
	if _, err := w.agreed(of).Register(w.T.Context(), username, "", false); err != nil {
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

// empty refunds the payment channel, as a stranger can.
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

// TestEmptiedChannel: a channel that a stranger emptied is filled again if the blockchain shows that the deposit came back, whatever the
// server says.
func TestEmptiedChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	for name, test := range map[string]struct {
		chain  agent.Chain
		filled bool
	}{
		"no_blockchain":       {nil, false},
		"it_may_still_arrive": {shifted{Chain: w.Chain}, false},
		"it_is_there":         {shifted{Chain: w.Chain, ahead: time.Hour, more: testkit.Dollar}, false},
		"unreachable":         {shifted{Chain: &x402.Chain{URL: "http://127.0.0.1:1"}, ahead: time.Hour}, false},
		"it_came_back":        {shifted{Chain: w.Chain, ahead: time.Hour}, true},
	} {
		of := w.initialized(name)
		w.empty(of)
		if filled := w.fromChannel(w.Open(of.folder, of.signer, test.chain), "weather"); filled != test.filled {
			t.Errorf("%s: another deposit is made: %t, want %t", name, filled, test.filled)
		}
	}
}

// TestFailedDeposit: a deposit that the signer does not sign uses nothing of the limit.
func TestFailedDeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	of := w.wallet()
	w.registerAs(of, "alice") // with a limit of 10 USD
	w.empty(of)
	broken := w.open(wallet{brokenSigner{of.signer}, of.folder})
	before, err := broken.Ledger().Left(t.Context())
	testkit.NoError(t, err)
	if err := call1(t, broken); err == nil {
		t.Error("a call without a signature succeeded")
	}
	if after, err := broken.Ledger().Left(t.Context()); err != nil || after != before {
		t.Errorf("%d are left for deposits, want %d as before (%v)", after, before, err)
	}
}
