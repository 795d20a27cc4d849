package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// TestCallsAfterLostResponses: the day and the payment channel have what was charged after calls whose outcome was not known for a while,
// whether the server got them or not, and whatever call came next.
func TestCallsAfterLostResponses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, of := w.register("alice")
	spentBefore := spent(t, alice)
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
		rest, err := alice.Deposited()
		charged := w.charged() - chargedBefore
		if used, gone := spent(t, alice)-spentBefore, deposited-rest; used != charged || gone != charged || err != nil {
			t.Errorf("after call %d the day has %d, the payment channel %d (%v), %d was charged", i, used, gone, err, charged)
		}
	}
}

// brokenSigner signs nothing. It calls dies before.
type brokenSigner struct {
	x402.Signer
	dies func()
}

func (s brokenSigner) SignTypedData(context.Context, x402.TypedData) (string, error) {
	s.dies()
	return "", errors.New("broken")
}

// TestFailedSignature: a call that the signer does not sign takes nothing from what counts for the refused call before it. If the process
// dies meanwhile, the same call ends the count of what it reserved.
func TestFailedSignature(t *testing.T) {
	t.Parallel()
	eachScheme(t, func(t *testing.T, settings ...func(*server.Config)) {
		w := newWorld(t, settings...)
		alice, of := w.register("alice")
		if _, err := alice.Resolve(t.Context(), "nobody"); err == nil {
			t.Fatal("nobody is there")
		}
		net := func() uint64 {
			today, err := alice.Ledger().Today(t.Context())
			testkit.NoError(t, err)
			return today.Spent - today.Reserved
		}
		for _, dies := range []bool{false, true} {
			var broken *agent.Agent
			broken = w.open(wallet{brokenSigner{of.signer, func() {
				if dies {
					broken.Close()
				}
			}}, of.folder})
			before, search := net(), map[string]any{"query": "weather"} // dearer than the refused call
			if _, err := broken.Call(t.Context(), "searchAgents", search, agent.CallOptions{}); err == nil {
				t.Error("a call without a signature succeeded")
			}
			if now := net(); !dies && now != before {
				t.Errorf("%d counts after a call that was not signed, want %d", now, before)
			}
			if call(t, alice, "searchAgents", search); net() != before+5000 {
				t.Errorf("%d counts after the call, want %d more than %d (dies: %v)", net(), 5000, before, dies)
			}
		}
	})
}
