package agent_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// thief keeps the payments that an agent sends to a server, and takes them all in the end.
type thief struct {
	w      *world
	mu     sync.Mutex
	stolen map[string]string // payments with a transfer, by nonce
}

// see returns whether the payment of a request was seen before. A request without such a payment was.
func (s *thief) see(r *http.Request) (again bool) {
	payment, _ := x402.DecodePayment(r.Header.Get(x402.HeaderPaymentSignature))
	exact, ok := payment.(*x402.PaymentPayload)
	if !ok {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	nonce := exact.Payload.Authorization.Nonce
	_, again = s.stolen[nonce]
	s.stolen[nonce] = r.Header.Get(x402.HeaderPaymentSignature)
	return again
}

// take settles all payments, and returns what the wallet lost.
func (s *thief) take(address string) uint64 {
	s.w.T.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.w.balance(address)
	facilitator := &x402.Facilitator{BaseURL: strings.TrimSuffix(s.w.Chain.URL, "/rpc")}
	for _, payment := range s.stolen {
		exact, err := x402.DecodePaymentPayload(payment)
		testkit.NoError(s.w.T, err)
		if _, err := facilitator.Settle(s.w.T.Context(), exact, exact.Accepted); err != nil {
			s.w.T.Fatal(err)
		}
	}
	return before - s.w.balance(address)
}

func (w *world) balance(address string) uint64 {
	w.T.Helper()
	balance, err := w.Chain.Balance(w.T.Context(), testkit.PlayMoney.Asset, address)
	testkit.NoError(w.T, err)
	return balance
}

// TestAccountIsPaidOnce: a server that denies the payment for an account with other terms gets no second one.
func TestAccountIsPaidOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agreed(w.wallet())
	stolen := &thief{w: w, stolen: map[string]string{}}
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		first := !stolen.see(r) && strings.Contains(r.URL.Path, "create")
		if exact, err := x402.DecodePaymentPayload(r.Header.Get(x402.HeaderPaymentSignature)); first && err == nil &&
			exact.Accepted.Scheme == x402.SchemeExact {
			offer := exact.Accepted
			offer.MaxTimeoutSeconds++
			w.AskAgain(rw, r, "", offer)
			return
		}
		next.ServeHTTP(rw, r)
	})
	_, err := a.Register(t.Context(), "alice", "")
	if !isOwned(err) || !strings.HasPrefix(err.Error(), "0.99 USD were sent for an account before") {
		t.Errorf("the second payment: %v, want that one was sent", err)
	}
	if taken := stolen.take(a.Address()); taken > testkit.Dollar {
		t.Errorf("the server took %d for an account", taken)
	}
}

// TestDepositsAreLimited: a server that denies its deposits gets no more of them than the daily limit.
func TestDepositsAreLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, _ := w.register("alice")
	testkit.NoError(t, alice.Ledger().SetLimit(t.Context(), 3*testkit.Dollar))
	before := w.balance(alice.Address())
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		payment, _ := x402.DecodePayment(r.Header.Get(x402.HeaderPaymentSignature))
		batch, ok := payment.(*x402.BatchPayment)
		if !ok || batch.Payload.Deposit != nil {
			next.ServeHTTP(rw, r)
			return
		}
		w.AskAgain(rw, r, x402.ReasonBatchExceedsBalance, batch.Accepted)
	})
	for i := range 8 {
		_, _ = alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{Key: fmt.Sprint(i)})
	}
	if moved := before - w.balance(alice.Address()); moved > 3*testkit.Dollar {
		t.Errorf("%d left the wallet, the limit is 3000000", moved)
	}
}

// TestLongValidity: an offer whose payments would be valid for longer than they count against the limits is no offer.
func TestLongValidity(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		offer := testkit.PlayMoney.Requirements(1000, "0x00000000000000000000000000000000000000aa", 10*365*24*3600)
		w.AskAgain(rw, r, "", offer)
	})
	if _, err := w.open(w.wallet()).Terms(t.Context(), w.URL, ""); err == nil || !strings.Contains(err.Error(), "valid for") {
		t.Errorf("the terms: %v", err)
	}
	if err := call1(t, alice); err == nil {
		t.Error("a call was paid")
	}
}

// TestRefundOfDeposits: what is left of a deposit comes back, also with a limit of 0. The API key goes with the refund, if there is one.
func TestRefundOfDeposits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, of := w.register("alice")
	keys := map[string]int{}
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		payment, _ := x402.DecodePayment(r.Header.Get(x402.HeaderPaymentSignature))
		if batch, ok := payment.(*x402.BatchPayment); ok && batch.Payload.Type == x402.BatchRefund {
			keys[r.Header.Get("X-API-KEY")]++
		}
		next.ServeHTTP(rw, r)
	})
	call(t, alice, "searchAgents", map[string]any{"query": "weather"})
	testkit.NoError(t, alice.Ledger().SetLimit(t.Context(), 0))
	before := w.balance(alice.Address())
	refunded, err := w.open(of).Refund(t.Context())
	if came := w.balance(alice.Address()) - before; err != nil || refunded == 0 || came != refunded {
		t.Errorf("%d was refunded, %d came, %v", refunded, came, err)
	}
	if len(keys) != 1 || keys[""] != 0 {
		t.Errorf("the refunds have the keys %v, want one that is not empty", keys)
	}
	testkit.NoError(t, os.Remove(filepath.Join(of.folder, "secrets.json")))
	if _, err := w.open(of).Refund(t.Context()); errors.Is(err, agent.ErrNoAccount) || keys[""] == 0 {
		t.Errorf("without an account: %v, and the keys %v; want a refund without a key", err, keys)
	}
}
