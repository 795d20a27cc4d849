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
	"github.com/parley-chat/parley/x402"
)

// TestHundredCopiesOfOnePayment: one charge, one effect, and whoever gets a 200 gets the same one.
func TestHundredCopiesOfOnePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	revenue, settles := w.Revenue(), w.proxy.count("/settle")
	o := alice.says(bob, "a hundred copies")
	copies := make([]order, 100)
	for i := range copies {
		copies[i] = o
	}
	replies := s.sendAll(copies...)
	var first testkit.Reply
	for _, r := range replies {
		switch {
		case r.Status == http.StatusConflict && r.Code == "payment_in_progress":
		case r.Status != http.StatusOK:
			t.Errorf("a copy returns %v, want 200, or 409 payment_in_progress", r)
		case first.Status == 0:
			first = r
		case !bytes.Equal(r.Body, first.Body) || r.Header.Get(x402.HeaderPaymentResponse) != first.Header.Get(x402.HeaderPaymentResponse):
			t.Errorf("a copy returns %v, another one %v", r, first)
		}
	}
	if first.Status == 0 {
		t.Error("no copy returned 200")
	}
	if again := s.pay(o); !bytes.Equal(again.Body, first.Body) {
		t.Errorf("the 101st copy returns %v, want %v", again, first)
	}
	if charged, messages := w.Revenue()-revenue, w.messages(o.content); charged != o.price || messages != 1 {
		t.Errorf("%d messages for %d, want one for %d", messages, charged, o.price)
	}
	if n := w.proxy.count("/settle") - settles; n != 1 {
		t.Errorf("/settle was called %d times, want once", n)
	}
	w.check()
}

// TestOnePaymentTwoRequests: one effect; the other request is told that the payment is spent.
func TestOnePaymentTwoRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for range rounds(t) {
		this, that := alice.says(bob, "this"), alice.says(bob, "that")
		that.header, that.payment = this.header, this.payment
		replies := s.sendAll(this, that)
		if got := statuses(replies); got[200] != 1 || got[409] != 1 || replies[0].Code+replies[1].Code != "payment_reused" {
			t.Errorf("the two return %v and %v, want a 200 and a 409 payment_reused", replies[0], replies[1])
		}
		if n := w.messages(this.content) + w.messages(that.content); n != 1 {
			t.Errorf("the two sent %d messages, want one", n)
		}
	}
	// And where the price is the same, for another operation, or by another agent.
	o := alice.says(bob, "spent")
	s.pay(o).Require(t, "a payment", 200)
	search := order{operation: operations["/search/agents"], body: `{"query":"bob"}`, headers: o.headers, header: o.header}
	stolen := o
	stolen.headers = []string{"X-API-KEY", bob.key}
	for name, r := range map[string]testkit.Reply{"for another operation": s.pay(search), "by another agent": s.pay(stolen)} {
		if r.Status != http.StatusConflict || r.Code != "payment_reused" {
			t.Errorf("the spent payment %s: %v, want 409 payment_reused", name, r)
		}
	}
	w.check()
}

// TestHundredPaymentsOneBalance: the payments are all good, the money is there for one.
func TestHundredPaymentsOneBalance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	revenue := w.Revenue()
	poor := w.Wallet(operations["/chat/private/send"].price)
	orders := make([]order, 100)
	for i := range orders {
		orders[i] = alice.saysFrom(poor, bob, "one of a hundred")
	}
	replies := s.sendAll(orders...)
	if got := statuses(replies); got[200] != 1 || got[402] != 99 {
		t.Errorf("the replies by status: %v, want one 200 and 99 times 402", got)
	}
	for i, r := range replies {
		if want := r.Status == http.StatusOK; (w.messages(orders[i].content) == 1) != want {
			t.Errorf("replied %d, the message is there: %v", r.Status, !want)
		}
	}
	if charged := w.Revenue() - revenue; charged != orders[0].price {
		t.Errorf("charged %d, want the price of one, %d", charged, orders[0].price)
	}
	w.check()
}

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

// TestBothVersionsOnePayment: one authorization, sent as version 1 and as version 2 of the protocol.
func TestBothVersionsOnePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for range rounds(t) {
		revenue := w.Revenue()
		two := alice.says(bob, "in both versions")
		one := two.asV1(w)
		replies := s.sendAll(one, two, one, two, one, two)
		for _, r := range replies {
			if r.Status != http.StatusOK || !bytes.Equal(r.Body, replies[0].Body) {
				t.Errorf("one of both versions returns %v, another one %v, want the same 200", r, replies[0])
			}
		}
		for name, o := range map[string]order{"1": alice.says(bob, "spent in version 1"), "2": alice.says(bob, "spent in version 2")} {
			o.header, o.v1 = two.header, false
			if name == "1" {
				o.header, o.v1 = one.header, true
			}
			s.pay(o).Want(t, fmt.Sprintf("the payment in version %s for another request", name), 409, "payment_reused")
		}
		if charged, n := w.Revenue()-revenue, w.messages(two.content); charged != two.price || n != 1 {
			t.Errorf("both versions charged %d for %d messages, want %d for one", charged, n, two.price)
		}
	}
	// Junk in the one header is not saved by a good payment in the other.
	o := alice.says(bob, "with a header of each")
	revenue := w.Revenue()
	if r := s.pay(o.asV1(w), x402.HeaderPaymentSignature, "junk"); r.Status != http.StatusBadRequest || w.Revenue() != revenue {
		t.Errorf("junk in PAYMENT-SIGNATURE and a good X-PAYMENT: %v, want 400", r)
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
