//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"net/http"
	"testing"
	"time"
)

// deferring are the settings of these tests: calls up to a cent are answered first, up to 10 messages of one payer and
// 40 messages of all.
var deferring = []string{"--deferred-up-to", "0.01", "--deferred-payer-cap", "0.05", "--deferred-total-cap", "0.2"}

// beforeSettlement sends orders while nothing can be settled, and returns how many are answered 200 although. Then it
// lets the facilitator go on, and all of them must be.
func (s *server) beforeSettlement(t *testing.T, orders ...order) int {
	t.Helper()
	hold := s.w.proxy.hold(10*len(orders), false)
	answers := make(chan reply, len(orders))
	for _, o := range orders {
		go func() {
			r, _ := s.send(context.WithoutCancel(t.Context()), o)
			answers <- r
		}()
	}
	early := 0
	for quiet := false; !quiet && early < len(orders); {
		select {
		case r := <-answers:
			if early++; r.status != http.StatusOK {
				t.Errorf("answered before the settlement: %v, want 200", r)
			}
		case <-time.After(4 * time.Second): // everybody else waits for the facilitator
			quiet = true
		}
	}
	for _, o := range orders {
		if s.w.used(o) {
			t.Error("money moved while the facilitator was held")
		}
	}
	if n := s.effects(t, orders); n != early {
		t.Errorf("%d were answered before the settlement, and %d effects are there", early, n)
	}
	hold.release()
	for range len(orders) - early {
		if r := <-answers; r.status != http.StatusOK {
			t.Errorf("answered after the settlement: %v, want 200", r)
		}
	}
	return early
}

func (s *server) effects(t *testing.T, orders []order) (n int) {
	t.Helper()
	for _, o := range orders {
		if o.content != "" {
			n += s.w.messages(o.content)
		}
	}
	return n
}

// TestDeferredCaps: what is answered before it is settled never exceeds the caps, whatever comes at once.
func TestDeferredCaps(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve(deferring...)
	alice, bob := s.agent("alice"), s.agent("bob")
	w.check() // nothing is owed
	orders := func(n int, wallets ...*ecdsa.PrivateKey) []order {
		var all []order
		for range n {
			for _, wallet := range wallets {
				all = append(all, alice.saysFrom(wallet, bob, "deferred"))
			}
		}
		return all
	}
	for range 2 { // what was settled makes room again
		if n := s.beforeSettlement(t, orders(50, alice.wallet)...); n != 10 {
			t.Errorf("of 50 calls of one payer %d were answered before the settlement, want the 10 that its cap allows", n)
		}
		w.check()
	}
	wallets := make([]*ecdsa.PrivateKey, 6)
	for i := range wallets {
		wallets[i] = w.wallet(dollar)
	}
	if n := s.beforeSettlement(t, orders(9, wallets...)...); n != 40 {
		t.Errorf("of 54 calls of six payers %d were answered before the settlement, want the 40 that the total cap allows", n)
	}
	w.check()
	// Two servers share the caps, since they share the database.
	second := w.serve(deferring...)
	hold := w.proxy.hold(1000, false)
	answers := make(chan reply, 50)
	for i, o := range orders(50, alice.wallet) {
		go func() {
			r, _ := []*server{s, second}[i%2].send(context.WithoutCancel(t.Context()), o)
			answers <- r
		}()
	}
	early := 0
	for quiet := false; !quiet; {
		select {
		case <-answers:
			early++
		case <-time.After(4 * time.Second):
			quiet = true
		}
	}
	if early != 10 {
		t.Errorf("of 50 calls of one payer at two servers %d were answered before the settlement, want 10", early)
	}
	hold.release()
	for range 50 - early {
		if r := <-answers; r.status != http.StatusOK {
			t.Errorf("at two servers: %v, want 200", r)
		}
	}
	w.check()
	second.stop()

	// Above the ceiling nothing is done before its settlement.
	group := w.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": "Dear"})
	if n := s.beforeSettlement(t, group); n != 0 {
		t.Error("a group was created before its settlement")
	}
	w.check()
	// A payment that is not good is not deferred either.
	bad := alice.says(bob, "not good")
	bad.header = alice.says(bob, "of another request").header[:len(bad.header)-8]
	s.refused(t, "a payment that is cut off", bad, http.StatusBadRequest, http.StatusPaymentRequired)
	// The same payment a hundred times, and for another request.
	o := alice.says(bob, "a hundred copies, deferred")
	copies := make([]order, 100)
	for i := range copies {
		copies[i] = o
	}
	for _, r := range s.sendAll(copies...) {
		if r.status != http.StatusOK && r.Code != "payment_in_progress" {
			t.Errorf("a copy of a deferred payment: %v, want 200", r)
		}
	}
	other := alice.says(bob, "with a spent payment")
	other.header = o.header
	if r := s.pay(other); r.status != http.StatusConflict {
		t.Errorf("a deferred payment for another request: %v, want 409", r)
	}
	w.check()
	if n := w.messages(o.content); n != 1 {
		t.Errorf("a hundred copies of a deferred payment sent %d messages, want one", n)
	}
}

// TestDefaultingPayer: who does not pay afterwards pays first from then on, until it has.
func TestDefaultingPayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve(deferring...)
	alice, bob := s.agent("alice"), s.agent("bob")
	w.check()
	empty := w.wallet(0)
	revenue := w.revenue()
	orders := make([]order, 50)
	for i := range orders {
		orders[i] = alice.saysFrom(empty, bob, "on credit")
	}
	replies := s.sendAll(orders...)
	served := statuses(replies)[http.StatusOK]
	if served < 1 || served > 10 || statuses(replies)[http.StatusPaymentRequired] != 50-served {
		t.Errorf("50 calls with an empty wallet are answered %v, want 200 up to the cap of 10, and else 402", statuses(replies))
	}
	for i, r := range replies {
		if r.status != http.StatusOK {
			continue
		}
		if !eventually(2*recoveryTime, func() bool { return w.state(orders[i]) == "defaulted" }) {
			t.Errorf("a call that was answered and cannot be settled is %q, want defaulted", w.state(orders[i]))
		}
		if again := s.pay(orders[i]); again.status != http.StatusOK || string(again.body) != string(r.body) {
			t.Errorf("a defaulted call once more: %v, want its answer %v", again, r)
		}
	}
	for _, restart := range []bool{false, true} {
		if restart {
			s.restart("")
		}
		for range 3 {
			o := alice.saysFrom(empty, bob, "on credit again")
			if r := s.pay(o); r.status != http.StatusPaymentRequired || w.messages(o.content) != 0 {
				t.Errorf("the next call of a payer that has defaulted: %v with %d messages, want 402 and none", r, w.messages(o.content))
			}
		}
	}
	if w.revenue() != revenue {
		t.Errorf("an empty wallet paid %d", w.revenue()-revenue)
	}
	w.check()
	if n := s.beforeSettlement(t, alice.says(bob, "by somebody else")); n != 1 {
		t.Error("a payer that has not defaulted is served with settlement first")
	}

	// It has money again: first with settlement, until it has paid as much as it had failed to pay, and then as before.
	if err := w.ledger.Mint(addressOf(empty), dollar); err != nil {
		t.Fatal(err)
	}
	if n := s.beforeSettlement(t, alice.saysFrom(empty, bob, "paid first")); n != 0 {
		t.Error("a payer that has defaulted was answered before it paid")
	}
	for range served - 1 {
		o := alice.saysFrom(empty, bob, "paid first, too")
		if r := s.pay(o); r.status != http.StatusOK || !w.used(o) {
			t.Errorf("a payer that makes up for what it owed: %v, money moved: %v, want 200 and true", r, w.used(o))
		}
	}
	w.check()
	if n := s.beforeSettlement(t, alice.saysFrom(empty, bob, "trusted again")); n != 1 {
		t.Error("a payer that has paid again is still served with settlement first")
	}
	w.check()
}

// TestDeferredAndRestarted: what was answered is settled, however often the servers die and whatever the facilitator
// does meanwhile.
func TestDeferredAndRestarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve(deferring...)
	alice, bob := s.agent("alice"), s.agent("bob")
	faults := []fault{silent, dropBefore, dropAfter, cutAfter, answer(500, ""), answerAfter(500, ""), answer(200, "<html>")}
	for i := range max(len(faults), rounds(t)) {
		w.check()
		w.proxy.breakWith(onSettle(faults[i%len(faults)]))
		orders := make([]order, 8)
		for i := range orders {
			orders[i] = alice.says(bob, "answered first")
		}
		for _, r := range s.sendAll(orders...) {
			if r.status != http.StatusOK && r.Code != "unavailable" { // once the facilitator is seen to be away nothing is deferred
				t.Errorf("a deferred call: %v, want 200", r)
			}
		}
		if i%2 == 0 {
			s.restart("")
		}
		w.proxy.mend()
		if i%3 == 0 || i%len(faults) == 0 { // whoever hangs in the silence is freed by a kill
			s.restart("")
		}
	}
	w.check()
}
