//go:build attack

package attack

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestTwoServersOnePayment: copies of one payment to two servers on one database, and then a different request.
func TestTwoServersOnePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.serve(), w.serve()
	alice, bob := one.agent("alice"), two.agent("bob")
	for range rounds(t) {
		settles := w.proxy.count("/settle")
		o := alice.says(bob, "to two servers")
		var replies [10]testkit.Reply
		var group sync.WaitGroup
		for i := range replies {
			group.Go(func() { replies[i], _ = []*server{one, two}[i%2].send(t.Context(), o) })
		}
		group.Wait()
		for _, r := range replies {
			if r.Status != http.StatusOK || !bytes.Equal(r.Body, replies[0].Body) {
				t.Errorf("a copy returns %v, another one %v, want the same 200", r, replies[0])
			}
		}
		if n, m := w.proxy.count("/settle")-settles, w.messages(o.content); n != 1 || m != 1 {
			t.Errorf("/settle was called %d times for %d messages, want once for one", n, m)
		}
		other := alice.says(bob, "with a spent payment")
		other.header, other.payment = o.header, o.payment
		two.pay(other).Want(t, "the payment for another request", 409)
	}
	w.check()
}

// TestPresenceLost: a server that lives and settles loses its connections to the database, so that the other one takes
// it for dead and settles the same payment as well.
func TestPresenceLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one := w.serve()
	alice, bob := one.agent("alice"), one.agent("bob")
	w.serve()
	for round := range rounds(t) {
		revenue := w.Revenue()
		o := alice.says(bob, "settled by two servers")
		hold := w.proxy.hold(2, round%2 == 0)
		replied := make(chan testkit.Reply, 1)
		go func() {
			r, _ := one.send(context.WithoutCancel(t.Context()), o)
			replied <- r
		}()
		hold.await(t)
		w.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		// Whoever comes first finds the owner gone, the owner's own recovery worker included. Perhaps nobody does: the
		// connection may be back already.
		select {
		case <-hold.reached:
		case <-time.After(3 * time.Second):
		}
		hold.release()
		if r := <-replied; r.Status != http.StatusOK && r.Status != http.StatusServiceUnavailable && r.Code != "payment_in_progress" {
			t.Errorf("settled by two servers: %v, want 200, or to come again", r)
		}
		one.insist(o).Want(t, "sent again", 200)
		w.check()
		if charged, n := w.Revenue()-revenue, w.messages(o.content); charged != o.price || n != 1 {
			t.Errorf("settled by two servers: charged %d for %d messages, want %d for one", charged, n, o.price)
		}
	}
}

// TestRefusedAtRecovery: the place is taken while the server that settled is dead, so that the recovery worker finds the
// refusal. Its payer hears of it when it comes again.
func TestRefusedAtRecovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	payer := w.Wallet(testkit.Dollar)
	for round := range rounds(t) {
		revenue := w.Revenue()
		wanted := fmt.Sprintf("wanted_%d", round)
		o := w.order(payer, "", "/register/request_account", map[string]any{"requested_username": wanted})
		s.crashes([]string{"begun", "settled", "committing"}[round%3], o)
		w.Exec("INSERT INTO registrations (username, tan_hash, payer, expires_at) VALUES ($1, sha256($2), '0xsomebody', now() + interval '10 minutes')", wanted, []byte(wanted))
		s.start("")
		w.check()
		if state := w.state(o); state != "undeliverable" {
			t.Errorf("the username went while the server was dead: the payment is %q, want undeliverable", state)
		}
		if r := s.pay(o); r.Status != http.StatusConflict || r.Code != "username_reserved" || !r.Charged {
			t.Errorf("its payer comes again: %v, want 409 username_reserved, charged", r)
		}
		mended := w.order(payer, "", "/register/request_account", map[string]any{"requested_username": fmt.Sprintf("free_%d", round)})
		mended.header, mended.payment = o.header, o.payment
		s.pay(mended).Want(t, "a mended request", 200)
		if charged := w.Revenue() - revenue; charged != o.price {
			t.Errorf("charged %d, want the price once, %d", charged, o.price)
		}
	}
	w.check()
}
