package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestDeferredSettlement: a cheap call is answered before it settles, its repetition too; dear ones and registration
// settle first.
func TestDeferredSettlement(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeferral(store.Caps{Call: 10_000, Payer: dollar, Total: 100 * dollar}))
	alice, bob := w.agent("alice"), w.agent("bob")
	if w.count(`SELECT count(*) FROM payments WHERE operation <> 'getOwnAgent' AND state <> 'delivered'`) != 0 {
		t.Error("a registration did not settle first")
	}
	w.recover()
	revenue, settles := w.revenue(), w.settles.Load()
	payment := w.sign(alice.wallet, "/chat/private/send")
	send := func() answer {
		return w.call(http.MethodPost, "/chat/private/send", `{"recipient_agent_id":`+quote(bob.id)+`,"content":"at once"}`, "X-API-KEY", alice.key, x402.HeaderPaymentSignature, payment)
	}
	first := send()
	settled, err := x402.DecodeSettleResponse(first.header.Get(x402.HeaderPaymentResponse))
	if first.status != http.StatusOK || err != nil || !settled.Success || settled.Transaction != "" {
		t.Fatalf("a deferred call: %v, PAYMENT-RESPONSE %+v (%v)", first, settled, err)
	}
	if w.settles.Load() != settles || w.count(`SELECT count(*) FROM payments WHERE state = 'owed' AND payload IS NOT NULL`) != 1 {
		t.Error("it settled first, or is not owed")
	}
	if again := send(); again.status != http.StatusOK || !bytes.Equal(again.body, first.body) {
		t.Errorf("sent again while it is owed: %v, want %v", again, first)
	}
	if group := w.pay(alice.wallet, "/chat/group/create", `{"name":"dear","description":"","is_discoverable":false,"initial_member_ids":[]}`, "X-API-KEY", alice.key); group.status != http.StatusOK || w.settles.Load() != settles+1 {
		t.Errorf("a dear call: %v, /settle called %d times, want once", group, w.settles.Load()-settles)
	}
	w.recover()
	if charged := w.revenue() - revenue; charged != 5000+150_000 || w.count(`SELECT count(*) FROM messages`) != 1 {
		t.Errorf("charged %d in the end, want 155000, with one message", charged)
	}
	again := send()
	if settled, err := x402.DecodeSettleResponse(again.header.Get(x402.HeaderPaymentResponse)); err != nil || settled.Transaction == "" || !bytes.Equal(again.body, first.body) {
		t.Errorf("sent again after it settled: %v, %+v (%v), want its transaction", again, settled, err)
	}
	if left := w.count(`SELECT (SELECT sum(owed) FROM deferred_payers) + (SELECT sum(owed) FROM deferred_totals)`); left != 0 {
		t.Errorf("the caps still count %d", left)
	}
	if refused := w.pay(alice.wallet, "/chat/private/send", `{"recipient_agent_id":`+quote(alice.id)+`,"content":"to myself"}`, "X-API-KEY", alice.key); refused.status != http.StatusBadRequest || w.count(`SELECT count(*) FROM payments WHERE state = 'owed'`) != 0 {
		t.Errorf("a refused call: %v, or it is owed", refused)
	}
}

// TestDeferralCaps: however many calls come at once, no more is owed than the caps allow; what is above settles first.
func TestDeferralCaps(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		caps   store.Caps
		owed   int64
		payers int
	}{
		{"of one payer", store.Caps{Call: 10_000, Payer: 17_000, Total: dollar}, 3, 1},
		{"of all payers", store.Caps{Call: 10_000, Payer: dollar, Total: 27_000}, 5, 4},
		{"of all payers, in parts", store.Caps{Call: 5_000, Payer: dollar, Total: 2 * 64 * 5_000}, 0, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withDeferral(test.caps))
			var senders []*agent
			for i := range test.payers {
				senders = append(senders, w.agent(fmt.Sprintf("sender_%d", i)))
			}
			bob := w.agent("bob")
			w.recover()
			const calls = 40
			settles := w.settles.Load()
			payments := make([]string, calls)
			for i := range payments {
				payments[i] = w.sign(senders[i%len(senders)].wallet, "/chat/private/send")
			}
			var group sync.WaitGroup
			for i, payment := range payments {
				group.Go(func() {
					body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":"number %d"}`, bob.id, i)
					a, err := w.try(http.MethodPost, "/chat/private/send", body, "X-API-KEY", senders[i%len(senders)].key, x402.HeaderPaymentSignature, payment)
					if err != nil || a.status != http.StatusOK {
						t.Errorf("a call: %v (%v), want 200", a, err)
					}
				})
			}
			group.Wait()
			owed := w.count(`SELECT count(*) FROM payments WHERE state = 'owed'`)
			if first := w.settles.Load() - settles; owed+first != calls || (test.owed > 0 && owed != test.owed) || uint64(owed)*5000 > test.caps.Total {
				t.Errorf("%d are owed and %d settled first, want %d owed of %d", owed, first, test.owed, calls)
			}
			w.recover()
			if paid := w.count(`SELECT sum(amount)::bigint FROM payments WHERE state = 'delivered'`); uint64(paid) != w.revenue() {
				t.Errorf("the payee has %d, delivered was %d", w.revenue(), paid)
			}
		})
	}
}

// TestDefaultingPayer: who does not pay what it owes is served only after settlement, until it has paid as much again.
func TestDefaultingPayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeferral(store.Caps{Call: 10_000, Payer: dollar, Total: 100 * dollar}))
	alice, bob := w.agent("alice"), w.agent("bob")
	w.recover()
	empty := w.wallet(1)
	n := 0
	send := func() answer {
		n++
		return w.pay(empty, "/chat/private/send", fmt.Sprintf(`{"recipient_agent_id":%q,"content":"on credit %d"}`, bob.id, n), "X-API-KEY", alice.key)
	}
	if a := send(); a.status != http.StatusOK {
		t.Fatalf("the first call: %v, want 200", a)
	}
	w.recover()
	if w.count(`SELECT count(*) FROM payments WHERE state = 'defaulted' AND payload IS NULL`) != 1 {
		t.Fatal("the payment did not default")
	}
	if a := send(); a.status != http.StatusPaymentRequired || a.Code != "payment_refused" {
		t.Errorf("after defaulting, without money: %v, want 402", a)
	}
	if err := w.ledger.Mint(address(empty), dollar); err != nil {
		t.Fatal(err)
	}
	settles := w.settles.Load()
	if a := send(); a.status != http.StatusOK || w.settles.Load() != settles+1 {
		t.Errorf("after defaulting, with money: %v, want it settled first", a)
	}
	if a := send(); a.status != http.StatusOK || w.settles.Load() != settles+1 {
		t.Errorf("after paying again: %v, want it deferred", a)
	}
	w.recover()
	if paid := w.count(`SELECT sum(amount)::bigint FROM payments WHERE state = 'delivered'`); uint64(paid) != w.revenue() {
		t.Errorf("the payee has %d, delivered was %d", w.revenue(), paid)
	}
}

// TestFacilitatorAway: one that accepts connections and says nothing is noticed; callers are told soon, prices still
// work, nothing is deferred, and all goes on by itself when it is back.
func TestFacilitatorAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withDeferral(store.Caps{Call: 2_000, Payer: dollar, Total: dollar}))
	alice, bob := w.agent("alice"), w.agent("bob")
	w.recover()
	back := make(chan struct{})
	mend := w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-back:
		case <-r.Context().Done():
		}
		return true
	})
	send := func(content string) answer {
		return w.pay(alice.wallet, "/chat/private/send", `{"recipient_agent_id":`+quote(bob.id)+`,"content":`+quote(content)+`}`, "X-API-KEY", alice.key)
	}
	for i := range 7 {
		began := time.Now()
		a := send(fmt.Sprint("while it is away ", i))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || time.Since(began) > 10*time.Second {
			t.Errorf("call %d: %v after %v, want 503 soon", i, a, time.Since(began))
		}
	}
	if a := w.call(http.MethodPost, "/agent/profile", `{"username":"bob"}`, "X-API-KEY", alice.key); a.status != http.StatusPaymentRequired {
		t.Errorf("a price while the facilitator is away: %v, want 402", a)
	}
	// By now the breaker is open.
	if a := w.pay(alice.wallet, "/agent/profile", `{"username":"bob"}`, "X-API-KEY", alice.key); a.status != http.StatusServiceUnavailable || a.Code != "unavailable" {
		t.Errorf("a call that could be deferred: %v, want 503 unavailable", a)
	}
	mend()
	close(back)
	w.recover()
	if a := send("back again"); a.status != http.StatusOK {
		t.Errorf("when it is back: %v, want 200", a)
	}
	if paid := w.count(`SELECT sum(amount)::bigint FROM payments WHERE state = 'delivered'`); uint64(paid) != w.revenue() {
		t.Errorf("the payee has %d, delivered was %d", w.revenue(), paid)
	}
}

// TestAdmin: what those who run the server see.
func TestAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.send(bob, "counted, not shown")
	for _, want := range []string{
		`parley_payments_total{operation="sendPrivateMessage",outcome="delivered"} 1`, `parley_revenue_atomic_units_total{operation="createAccount"} 1.98e+06`,
		`parley_requests_total{operation="sendPrivateMessage",status="200"} 1`, `parley_payments_open{state="undeliverable"} 0`, `parley_facilitator_up 1`,
	} {
		if text := w.admin("/metrics"); !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, secret := range w.secrets {
		if strings.Contains(w.admin("/metrics"), secret) {
			t.Errorf("the metrics hold a secret (%.6s…)", secret)
		}
	}
	if text := w.admin("/readyz"); text != `200 {"ready":true,"database":"ok","facilitator":"ok"}`+"\n" {
		t.Errorf("readyz: %s", text)
	}
	mend := w.breakFacilitator(func(rw http.ResponseWriter, _ *http.Request) bool { hangUp(rw); return true })
	defer mend()
	time.Sleep(1100 * time.Millisecond) // what it found last counts for a second
	if text := w.admin("/readyz"); text != `200 {"ready":true,"database":"ok","facilitator":"away"}`+"\n" {
		t.Errorf("readyz without a facilitator: %s", text)
	}
	w.disconnect()
	if text := w.admin("/readyz"); text != `503 {"ready":false,"database":"away","facilitator":"away"}`+"\n" {
		t.Errorf("readyz without a database: %s", text)
	}
	if text := w.admin("/livez"); text != "200 ok\n" {
		t.Errorf("livez: %s", text)
	}
}

// BenchmarkSettlement measures one paid call in three settings, by turns: settlement first with a facilitator that takes
// two seconds, deferred settlement with the same one, and settlement first with one that answers at once, which is
// what the database takes. It reports each one's median in milliseconds.
//
//	go test ./server -run '^$' -bench Settlement -benchtime 20x
func BenchmarkSettlement(b *testing.B) {
	caps := store.Caps{Call: 10_000, Payer: 100 * dollar, Total: 1000 * dollar}
	type setting struct {
		name   string
		world  *world
		caller *agent
		other  *agent
		took   []time.Duration
	}
	all := []*setting{
		{name: "first", world: newWorld(b)}, {name: "deferred", world: newWorld(b, withDeferral(caps))}, {name: "instant", world: newWorld(b)},
	}
	for _, s := range all {
		s.caller, s.other = s.world.agent("alice"), s.world.agent("bob")
		s.world.recover()
		if s.name != "instant" {
			s.world.network.DelaySettlements(2 * time.Second)
		}
	}
	n := 0
	for b.Loop() {
		n++
		for _, s := range all {
			payment := s.world.sign(s.caller.wallet, "/chat/private/send")
			body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":"number %d"}`, s.other.id, n)
			began := time.Now()
			a := s.world.call(http.MethodPost, "/chat/private/send", body, "X-API-KEY", s.caller.key, x402.HeaderPaymentSignature, payment)
			s.took = append(s.took, time.Since(began))
			if a.status != http.StatusOK {
				b.Fatalf("%s: %v", s.name, a)
			}
		}
	}
	for _, s := range all {
		slices.Sort(s.took)
		b.ReportMetric(float64(s.took[len(s.took)/2].Microseconds())/1000, s.name+"-p50-ms")
	}
}
