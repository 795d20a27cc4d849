package agent_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestServerWithOtherTerms: a server that asks for another price, payee, token or network, or sends the agent elsewhere, gets
// no further signature.
func TestServerWithOtherTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	before := w.Revenue()
	for name, change := range map[string]func(*x402.PaymentRequirements){
		"price":   func(o *x402.PaymentRequirements) { o.Amount = "1001" },
		"payee":   func(o *x402.PaymentRequirements) { o.PayTo = testkit.Address(testkit.NewKey()) },
		"token":   func(o *x402.PaymentRequirements) { o.Asset = testkit.Address(testkit.NewKey()) },
		"network": func(o *x402.PaymentRequirements) { o.Network = x402.NetworkBase },
	} {
		payments := 0
		w.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
			if r.Header.Get(x402.HeaderPaymentSignature) != "" {
				payments++
			}
			offer := testkit.PlayMoney.Requirements(1000, testkit.Address(testkit.NewKey()), 60)
			change(&offer)
			w.AskAgain(rw, r, "", offer)
		})
		_, err := alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{})
		if agent.CodeOf(err) != "terms_changed" || payments > 1 {
			t.Errorf("another %s: %v after %d payments, want a refusal after the one on the agreed terms", name, err, payments)
		}
	}
	w.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(rw, r, "http://127.0.0.1:1/agent/me", http.StatusTemporaryRedirect)
	})
	if err := call1(t, alice); agent.CodeOf(err) != "outcome_open" {
		t.Errorf("a redirect: %v, want an open outcome", err)
	}
	if w.Revenue() != before {
		t.Error("something was paid")
	}
}

func call1(t *testing.T, a *agent.Agent) error {
	t.Helper()
	_, err := a.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{})
	return err
}

// TestServerThatNeverKnows: 402 or 503 for ever ends in time, with one payment.
func TestServerThatNeverKnows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	for _, status := range []int{http.StatusPaymentRequired, http.StatusServiceUnavailable} {
		payments := &signatures{}
		w.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
			payments.note(r.Header.Get(x402.HeaderPaymentSignature))
			rw.Header().Set("Retry-After", "0")
			rw.WriteHeader(status)
			_, _ = io.WriteString(rw, `{"success":false,"code":"unavailable"}`)
		})
		began := time.Now()
		_, err := alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{Patience: time.Second})
		if payable, _ := payments.sum(t); err == nil || time.Since(began) > 30*time.Second || payable != 1000 {
			t.Errorf("%d for ever: %v after %v and payments of %d, want one of 1000", status, err, time.Since(began), payable)
		}
	}
}

// TestRefusalsDoNotEndTheDay: payments that the server refused and that expired are given back when the limit is reached.
func TestRefusalsDoNotEndTheDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, of := w.register("alice")
	testkit.NoError(t, alice.Ledger().SetLimit(t.Context(), spent(t, alice)+15_000))
	w.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
		rw.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(rw, `{"success":false,"code":"agent_not_found","message":"no","charged":false}`)
	})
	search := func(i int) error {
		_, err := alice.Call(t.Context(), "searchAgents", map[string]any{"query": fmt.Sprintf("word%d", i)}, agent.CallOptions{})
		return err
	}
	for i := range 3 {
		if refused, ok := errors.AsType[*agent.Failure](search(i)); !ok || refused.Status == 0 {
			t.Fatal("the call was not refused")
		}
	}
	w.Answer(nil)
	for _, after := range []time.Duration{0, time.Hour} {
		alice = w.Open(of.folder, of.signer, unused(after))
		if over := isLimit(search(3)); over != (after == 0) {
			t.Errorf("%s after the refusals: over the limit is %v", after, over)
		}
	}
}

// unused is a blockchain on which no payment was taken, at a time from now.
type unused time.Duration

func (u unused) Authorization(context.Context, string, string, string, time.Time) (x402.AuthorizationState, error) {
	return x402.AuthorizationState{ChainTime: time.Now().Add(time.Duration(u))}, nil
}

func (u unused) Balance(context.Context, string, string) (uint64, error) { return testkit.Dollar, nil }
