package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// agreement is Terms with one price and payee.
type agreement struct {
	offer x402.PaymentRequirements
	most  string // the highest price
}

var errNotAgreed = errors.New("not agreed")

func (a agreement) Required(*http.Request) *x402.PaymentRequired {
	return &x402.PaymentRequired{X402Version: 2, Accepts: []x402.PaymentRequirements{a.offer}}
}

func (a agreement) Accept(_ *http.Request, offer x402.PaymentRequirements) error {
	if offer.PayTo != a.offer.PayTo || len(offer.Amount) > len(a.most) || offer.Amount > a.most {
		return errNotAgreed
	}
	return nil
}

// TestPaysAtOnce: a call whose terms are known takes one request.
func TestPaysAtOnce(t *testing.T) {
	t.Parallel()
	s, p := open(t, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
	p.Terms = agreement{s.offer, "5000"}
	status, err := s.buy(t, p)
	if err != nil || status != 200 || len(s.bodies) != 1 || p.Spent() != 5000 {
		t.Errorf("replied %d (%v) after %d requests, spent %d; want one request for 5000", status, err, len(s.bodies), p.Spent())
	}
}

// refuse is a 402 that asks for another offer.
func refuse(t *testing.T, offer x402.PaymentRequirements) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		demand(t, w, &x402.PaymentRequired{Accepts: []x402.PaymentRequirements{offer}})
	}
}

// TestTermsThatChanged: the new price is paid with the same identifier if it is agreed, and else nothing more is signed. The same
// offer is not paid again.
func TestTermsThatChanged(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		change   func(*x402.PaymentRequirements)
		payments int
		status   int
		want     error
	}{
		{"cheaper", func(o *x402.PaymentRequirements) { o.Amount = "4000" }, 2, 200, nil},
		{"dearer", func(o *x402.PaymentRequirements) { o.Amount = "5001" }, 1, 0, errNotAgreed},
		{"another payee", func(o *x402.PaymentRequirements) { o.PayTo = "0x857b06519E91e3A54538791bDbb0E22373e36b66" }, 1, 0, errNotAgreed},
		{"the same", func(*x402.PaymentRequirements) {}, 1, 402, nil},
	} {
		sepolia, _ := x402.LookupNetwork(x402.NetworkBaseSepolia)
		known := sepolia.Requirements(5000, "0x209693Bc6afc0C5328bA36FaF03C514EF312287C", 60)
		changed := known
		test.change(&changed)
		s, p := open(t, refuse(t, changed), respond(200, `{}`)), payer(t, client.Limits{PerCall: 10_000, Total: 20_000})
		p.Terms = agreement{known, "5000"}
		status, err := s.buy(t, p)
		if !errors.Is(err, test.want) || status != test.status || len(s.payments) != test.payments {
			t.Errorf("%s: %d (%v) after %d payments, want %d (%v) after %d", test.name, status, err, len(s.payments), test.status, test.want,
				test.payments)
		}
		if ids := s.identifiers(t); ids[0] != ids[len(ids)-1] {
			t.Errorf("%s: the payments of one call have the identifiers %s", test.name, ids)
		}
	}
}

// notebook is a Journal that writes down what happens.
type notebook struct {
	mu     sync.Mutex
	signed map[string]client.SignedPayment
	closed map[string]client.Outcome
	full   error
}

func (n *notebook) Signed(_ context.Context, payment client.SignedPayment) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.signed == nil {
		n.signed, n.closed = map[string]client.SignedPayment{}, map[string]client.Outcome{}
	}
	n.signed[payment.ID] = payment
	return n.full
}

func (n *notebook) Closed(_ context.Context, id string, outcome client.Outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed[id] = outcome
}

// TestJournal: a payment is in the journal before it is sent, and its outcome when it is known.
func TestJournal(t *testing.T) {
	t.Parallel()
	book := &notebook{}
	s := open(t, func(w http.ResponseWriter) {
		if len(book.signed) != 1 {
			t.Error("the payment was sent before it was in the journal")
		}
		respond(503, `{"code":"unavailable"}`)(w)
	}, respond(503, `{}`), respond(200, `{"done":true}`))
	p := payer(t, client.Limits{PerCall: 5000, Total: 5000})
	p.Journal, p.Patience = book, time.Millisecond
	if status, err := s.buy(t, p); status != 503 || len(book.closed) != 0 {
		t.Fatalf("replied %d (%v), %d outcomes; want 503 and none", status, err, len(book.closed))
	}
	for id, signed := range book.signed {
		response, err := p.Resume(t.Context(), signed)
		if err != nil || response.StatusCode != 503 {
			t.Fatalf("resumed once: %v %v, want 503", response, err)
		}
		_ = response.Body.Close()
		if response, err = p.Resume(t.Context(), signed); err != nil || response.StatusCode != 200 {
			t.Fatalf("resumed twice: %v %v, want 200", response, err)
		}
		_ = response.Body.Close()
		want := client.Outcome{Status: 200, Body: []byte(`{"done":true}`), Charged: 5000}
		got := book.closed[id]
		got.Header = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the outcome (-want +got):\n%s", diff)
		}
	}
	if len(s.payments) != 3 || s.payments[0] != s.payments[2] || s.bodies[3] != `{"a":1}` {
		t.Error("the payment was not sent again as it was")
	}
}

// TestFullJournal: a payment that cannot be stored is not sent, and costs nothing.
func TestFullJournal(t *testing.T) {
	t.Parallel()
	full := errors.New("no space left on device")
	s, p := open(t, respond(200, `{}`)), payer(t, client.Limits{PerCall: 5000, Total: 5000})
	p.Journal = &notebook{full: full}
	if _, err := s.buy(t, p); !errors.Is(err, full) || len(s.payments) != 0 {
		t.Errorf("%v after %d payments, want the journal's error and none", err, len(s.payments))
	}
	p.Journal = nil
	if status, err := s.buy(t, p); status != 200 {
		t.Errorf("the next call: %d (%v), want 200: the first one cost nothing", status, err)
	}
}

// TestRedirect: a server that sends the client elsewhere gets no payment there.
func TestRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := open(t, respond(200, `{}`))
	redirecting := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirecting.Close)
	p := payer(t, client.Limits{PerCall: testkit.Dollar, Total: testkit.Dollar})
	agent, err := client.New(redirecting.URL, p)
	testkit.NoError(t, err)
	response, err := agent.GetOwnAgentWithResponse(t.Context())
	if err != nil || response.StatusCode() != http.StatusTemporaryRedirect || len(elsewhere.bodies) != 0 {
		t.Errorf("%v (%v), %d requests elsewhere; want the redirect and none", response, err, len(elsewhere.bodies))
	}
}
