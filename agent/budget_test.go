package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestCallsAfterRefusedOnes: a call that is paid with the voucher of a refused one counts as what it is: polls to the limit of polls, and
// no call to what a person approved for another one. The day has what was charged.
func TestCallsAfterRefusedOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, _ := w.register("alice")
	limits := agent.Limits{PerCall: 30_000, PerDay: 10 * testkit.Dollar, Polls: 3000}
	testkit.NoError(t, alice.Ledger().SetLimits(t.Context(), limits, true))
	used := func() uint64 {
		_, left, _, err := alice.Ledger().Limits(t.Context())
		testkit.NoError(t, err)
		return limits.PerDay - left.PerDay
	}
	refused := func(operation string, arguments map[string]any) {
		t.Helper()
		_, err := alice.Call(t.Context(), operation, arguments, agent.CallOptions{})
		if limit, ok := errors.AsType[*agent.LimitError](err); ok {
			if _, err := alice.Ledger().Approve(t.Context(), limit.Approval); err != nil {
				t.Fatal(err)
			}
			_, err = alice.Call(t.Context(), operation, arguments, agent.CallOptions{})
		}
		if _, ok := errors.AsType[*agent.RefusedError](err); !ok {
			t.Fatalf("%s: %v, want a refusal by the server", operation, err)
		}
	}
	usedBefore, chargedBefore, polls := used(), w.charged(), 0
	same := func() {
		t.Helper()
		if used, charged := used()-usedBefore, w.charged()-chargedBefore; used != charged {
			t.Errorf("the day has %d, %d was charged", used, charged)
		}
	}
	for i := range 5 {
		refused("getAgentProfile", map[string]any{"username": fmt.Sprint("nobody", i)})
		result, err := alice.Call(t.Context(), "listUnreadMessages", nil, agent.CallOptions{})
		if _, over := errors.AsType[*agent.LimitError](err); over {
			continue
		}
		testkit.NoError(t, errors.Join(err, alice.Seen(t.Context(), result)))
		polls++
		same()
	}
	if polls != 3 {
		t.Errorf("%d polls of 0.001 were paid with a limit of 0.003", polls)
	}
	nobody := map[string]any{"name": "team", "initial_member_ids": []any{"agent_01k70t94aqeembse7n65ptksh0"}}
	refused("createGroupChat", nobody)
	for i := range 10 {
		call(t, alice, "searchAgents", map[string]any{"query": fmt.Sprint("word", i)})
		same()
	}
}

// TestCallsAfterLostResponses: the day and the payment channel have what was charged after calls whose outcome was not known for a while,
// whether the server got them or not, and whatever call came next.
func TestCallsAfterLostResponses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, of := w.register("alice")
	limits, left, _, err := alice.Ledger().Limits(t.Context())
	testkit.NoError(t, err)
	deposited, err := alice.Deposited()
	testkit.NoError(t, err)
	chargedBefore := w.charged()
	for i := range 8 {
		search := map[string]any{"query": fmt.Sprint("word", i)}
		w.AnswerPaid(agenttest.LoseResponse)
		if i%4 > 1 { // the server does not get it
			w.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) { testkit.HangUp(rw) })
		}
		if _, err := alice.Call(t.Context(), "searchAgents", search, agent.CallOptions{Patience: time.Second}); err == nil {
			t.Fatal("there is a response")
		}
		w.Answer(nil)
		alice = w.open(of)
		if i%2 == 0 {
			call(t, alice, "listUnreadMessages", map[string]any{"mark_read": false})
		}
		if open, err := alice.Resume(t.Context()); err != nil || open != 0 {
			t.Errorf("%d calls are open, %v", open, err)
		}
		if !call(t, alice, "searchAgents", search).Earlier {
			t.Error("the call was made again")
		}
		_, now, _, err := alice.Ledger().Limits(t.Context())
		testkit.NoError(t, err)
		rest, err := alice.Deposited()
		charged := w.charged() - chargedBefore
		if used, spent := left.PerDay-now.PerDay, deposited-rest; used != charged || spent != charged || err != nil {
			t.Errorf("after call %d the day has %d, the payment channel %d (%v), %d was charged", i, used, spent, err, charged)
		}
		if polls := limits.Polls - now.Polls; polls != uint64(i/2+1)*1000 { //nolint:gosec // not negative
			t.Errorf("after call %d the polls have %d", i, polls)
		}
	}
}

// TestFailedSignature: a call that the signer does not sign takes nothing from what counts for the refused call before it.
func TestFailedSignature(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, of := w.register("alice")
	if _, err := alice.Resolve(t.Context(), "nobody"); err == nil {
		t.Fatal("nobody is there")
	}
	broken := w.open(wallet{agent.CommandSigner{Command: "exit 1", Wallet: of.signer.Address()}, of.folder})
	search := map[string]any{"query": "weather"} // dearer than the refused call
	if _, err := broken.Call(t.Context(), "searchAgents", search, agent.CallOptions{}); err == nil {
		t.Error("a call without a signature succeeded")
	}
	if refused, err := alice.Ledger().Refused(t.Context()); err != nil || refused != 1000 {
		t.Errorf("%d counts for refused calls (%v), want 1000", refused, err)
	}
	call(t, alice, "searchAgents", search)
	if refused, err := alice.Ledger().Refused(t.Context()); err != nil || refused != 0 {
		t.Errorf("%d counts for refused calls (%v), want 0: the call was paid with that voucher", refused, err)
	}
}
