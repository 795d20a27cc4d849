//go:build attack

package attack

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// mustServeFree fails the test if what needs no facilitator does not work, within 2 s.
func (s *server) mustServeFree(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for path, want := range map[string]int{"/health": http.StatusOK, "/openapi.json": http.StatusOK, "/skill": http.StatusOK} {
		if r, err := s.try(ctx, http.MethodGet, path, ""); err != nil || r.Status != want {
			t.Errorf("without the facilitator GET %s: %v %v, want %d", path, r, err, want)
		}
	}
	r, err := s.try(ctx, http.MethodPost, "/chat/private/send", "")
	if _, malformed := x402.DecodePaymentRequired(r.Header.Get(x402.HeaderPaymentRequired)); err != nil || malformed != nil ||
		r.Status != http.StatusPaymentRequired {
		t.Errorf("without the facilitator the price: %v %v %v, want 402", r, err, malformed)
	}
}

// mustSayComeAgain fails the test if the order is not replied 503 with Retry-After. It returns how long that took.
func (s *server) mustSayComeAgain(t *testing.T, o order) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	started := time.Now()
	if r, err := s.send(ctx, o); err != nil || r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("a payment without the facilitator: %v %v, want 503 with Retry-After", r, err)
	}
	took := time.Since(started)
	if n := s.w.messages(o.content); n != 0 || s.w.used(o) {
		t.Errorf("without the facilitator there are %d messages, money moved: %v", n, s.w.used(o))
	}
	return took
}

// TestFacilitatorGone: the facilitator is gone when a server starts, its port is closed while the server runs, and it accepts connections
// without ever replying. Callers are told to come again within two seconds, and what needs no facilitator works.
func TestFacilitatorGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for _, test := range []struct {
		name       string
		gone, back func()
	}{
		{"at the start of the server", func() { s.stop(); w.proxy.close(); s.start("") }, w.proxy.open},
		{"while the server runs", w.proxy.close, w.proxy.open},
		{"it never replies", w.proxy.stopResponding, w.proxy.mend},
	} {
		test.gone()
		s.mustServeFree(t)
		again, left := alice.says(bob, "sent again"), alice.says(bob, "left alone")
		for range 4 { // in the end nobody asks it any more, and the reply is the same
			// One of the two may wait for the other tests on this machine.
			if took := min(s.mustSayComeAgain(t, again), s.mustSayComeAgain(t, left)); took > 3*time.Second {
				t.Errorf("%s: the replies took at least %v, want two seconds", test.name, took)
			}
		}
		test.back()
		s.insist(again).Want(t, "sent again when the facilitator is back: "+test.name, 200)
		w.check()
		if n := w.messages(left.content); n > 1 || (n == 1) != w.used(left) {
			t.Errorf("%s: the payment that was left alone: %d messages, money moved: %v", test.name, n, w.used(left))
		}
	}
}

// TestSettleSilent: the facilitator's chain is so slow that /settle never replies.
func TestSettleSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	const many = 60 // more than the server has connections to its database
	orders := make([]order, many)
	for i := range orders {
		orders[i] = alice.says(bob, "while nobody responds")
	}
	silent := make(chan struct{})
	w.proxy.breakWith(func(c *call) {
		if c.path == "/supported" {
			pass(c)
			return
		}
		c.wait(silent)
		testkit.HangUp(c.w)
	})
	replied := make(chan []testkit.Reply)
	go func() { replied <- s.sendAll(orders...) }()
	if !testkit.Eventually(20*time.Second, func() bool { return w.proxy.count("/settle") >= many+4 }) {
		t.Errorf("only %d of %d payments reached the facilitator", w.proxy.count("/settle")-4, many)
	}
	// All of them hang, and the server is there for everybody else.
	s.mustServeFree(t)
	if r := s.call(http.MethodPost, "/chat/private/send", orders[0].body, "X-API-KEY", "parley_nonsense", x402.HeaderPaymentSignature,
		orders[0].header); r.Status != http.StatusUnauthorized {
		t.Errorf("a wrong key while the facilitator is silent: %v, want 401", r)
	}
	// A copy does not wait for long: its caller is told to come again.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := s.send(ctx, orders[0]); err != nil || r.Status != http.StatusConflict || r.Code != "payment_in_progress" ||
		r.Header.Get("Retry-After") == "" {
		t.Errorf("a copy while the facilitator is silent: %v %v, want 409 payment_in_progress with Retry-After", r, err)
	}
	w.proxy.mend()
	close(silent)
	for _, r := range <-replied {
		if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
			t.Errorf("when the silent facilitator hangs up: %v, want 503 with Retry-After", r)
		}
	}
	for _, o := range orders[:many/2] {
		s.insist(o).Want(t, "sent again", 200)
	}
	w.check()
	if n := w.Count("SELECT count(DISTINCT content) FROM messages"); n != many {
		t.Errorf("of %d messages that were begun meanwhile %d are there", many, n)
	}
}
