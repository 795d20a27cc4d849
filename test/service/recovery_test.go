package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// TestRecoveryDeliversWhatWasPaid: the money moved, the reply was lost, and nobody comes again. The effect is made all
// the same, once, whatever the operation; whoever does come again finds the reply.
func TestRecoveryDeliversWhatWasPaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, newcomer := w.agent("alice"), w.agent("bob"), w.Wallet(10*testkit.Dollar)
	alice.send(bob, "to be read")
	var reserved struct{ TAN string }
	if a := w.pay(newcomer, "/register/request_account", `{"requested_username":"carol"}`); json.Unmarshal(a.Body, &reserved) != nil ||
		reserved.TAN == "" {
		t.Fatalf("carol's TAN: %v", a)
	}
	w.Secret(reserved.TAN)
	group := alice.createGroup("a group", bob)
	dora := w.agent("dora")
	alice.send(dora, "to be confirmed")
	alice.send(dora, "to be returned")
	cursor := isPage(t, "dora", dora.polls("?mark_read=false&page_size=1", dora.signsPoll()), 1, 0)
	for _, test := range []struct {
		method, path, body string
		by                 *agent
		effect             string
	}{
		{http.MethodPost, "/chat/private/send", `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"found later"}`, alice,
			`SELECT count(*) FROM messages WHERE content = 'found later'`},
		{http.MethodGet, "/agent/unread?page_size=10", "", bob, `SELECT count(*) FROM memberships m JOIN conversations c ON c.id = conversation_id
			WHERE kind = 'private' AND m.read_number = c.last_number AND m.unread_own = 0 AND c.last_number > 0 AND agent_id = (SELECT id FROM agents
			WHERE username = 'bob')`},
		{http.MethodGet, "/agent/unread?wait=60&read_through=" + cursor, "", dora, `SELECT count(*) FROM memberships
			WHERE read_number = 1 AND agent_id = (SELECT id FROM agents WHERE username = 'dora')`},
		{http.MethodPost, "/chat/group/edit", `{"chat_id":` + quote(group) + `,"name":"renamed"}`, alice,
			`SELECT count(*) FROM conversations WHERE name = 'renamed'`},
		{http.MethodPost, "/agent/rotate_key", "", bob, `SELECT count(*) FROM agents WHERE username = 'bob' AND previous_key_hash IS NOT NULL`},
		{http.MethodPost, "/register/request_account", `{"requested_username":"dave"}`, nil,
			`SELECT count(*) FROM registrations WHERE username = 'dave'`},
		{http.MethodPost, "/register/create_account", `{"username":"carol","tan":` + quote(reserved.TAN) + `,"description":""}`, nil,
			`SELECT count(*) FROM agents WHERE username = 'carol'`},
	} {
		wallet, headers := newcomer, []string{}
		if test.by != nil {
			wallet, headers = test.by.Wallet, []string{"X-API-KEY", test.by.Key}
		}
		path, _, _ := bytes.Cut([]byte(test.path), []byte("?"))
		headers = append(headers, x402.HeaderPaymentSignature, w.signFor(wallet, test.method, string(path),
			testkit.Identified(rand.Text()+rand.Text())))
		revenue, before := w.Revenue(), w.Count(test.effect)
		mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
		w.call(test.method, test.path, test.body, headers...).Want(t, test.path+", the settlement's reply lost", 503)
		mend()
		if w.Count(test.effect) != before {
			t.Errorf("%s: the effect is there although the settlement is not known", test.path)
		}
		w.recover()
		charged := w.Revenue() - revenue
		if w.Count(test.effect) != before+1 {
			t.Errorf("%s: %d effects after recovery, want one", test.path, w.Count(test.effect)-before)
		}
		first := w.call(test.method, test.path, test.body, headers...)
		second := w.call(test.method, test.path, test.body, headers...)
		if first.Status != http.StatusOK || !bytes.Equal(first.Body, second.Body) {
			t.Errorf("%s, sent again: %v and %v, want the stored reply", test.path, first, second)
		}
		if w.Count(test.effect) != before+1 || w.Revenue()-revenue != charged || charged == 0 {
			t.Errorf("%s: sent again it had %d effects for %d", test.path, w.Count(test.effect)-before, w.Revenue()-revenue)
		}
	}
	if w.Count(`SELECT count(*) FROM payments WHERE state <> 'delivered' OR request IS NOT NULL OR payload IS NOT NULL OR key_hash IS NOT
		NULL`) != 0 {
		t.Error("a payment is not delivered, or keeps what it needs no more")
	}
}

// TestRetriedRotationReplacesOnlyItsKey: an agent that gave up on a rotation and paid for another one by another wallet keeps
// that key.
func TestRetriedRotationReplacesOnlyItsKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	w.pay(alice.Wallet, "/agent/rotate_key", `{}`, "X-API-KEY", alice.Key).Require(t, "the settlement's reply lost", 503)
	mend()
	rotated := w.rotated(w.pay(w.Wallet(testkit.Dollar), "/agent/rotate_key", `{}`, "X-API-KEY", alice.Key))
	w.recover()
	if w.Count(`SELECT count(*) FROM payments WHERE state = 'undeliverable'`) != 1 {
		t.Error("the first rotation was delivered, or is lost")
	}
	w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", rotated, x402.HeaderPaymentSignature, w.signFor(alice.Wallet, http.MethodGet,
		"/agent/me")).Want(t, "the key of the second rotation", http.StatusOK)
}

// TestRefusalAfterALostResponse: after an attempt whose reply was lost, a refusal is not the last word until the chain says
// that the payment can never be settled.
func TestRefusalAfterALostResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.Wallet(testkit.Dollar)
	payment := w.sign(payer, "/chat/private/send")
	send := func() testkit.Reply { return alice.sendWith(payment, bob, "for nothing") }
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" {
			testkit.HangUp(rw)
		}
		return r.URL.Path == "/settle"
	})
	send().Want(t, "the facilitator hangs up", 503)
	mend()
	w.transfer(x402.Authorization{From: testkit.Address(payer), To: testkit.Address(alice.Wallet)}, testkit.Dollar)
	send().Want(t, "refused while the first attempt may be under way", 503, "payment_unknown")
	w.Exec(`UPDATE payments SET valid_before = now() - interval '1 minute' WHERE state = 'unknown'`)
	known(send).Want(t, "refused when it can never be settled any more", 402, "payment_refused")
	if w.Count(`SELECT count(*) FROM payments WHERE state = 'failed'`) != 1 || w.Count(`SELECT count(*) FROM messages`) != 0 {
		t.Error("the payment is not failed, or there is a message")
	}
}

// TestOnlyRowsOfTheDeadAreTakenUp: what a living server settles is left to it, what a dead one began is not.
func TestOnlyRowsOfTheDeadAreTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	alice.sends(bob, "whose?")
	mend()
	open := store.OpenPayments{Network: testkit.PlayMoney.ID, Asset: strings.ToLower(testkit.PlayMoney.Asset), Limit: 10, MaxAttempts: 50}
	claim := func() int {
		t.Helper()
		rows, err := w.store.TakeOpenPayments(t.Context(), open, time.Hour)
		testkit.NoError(t, err)
		return len(rows)
	}
	other, err := store.Open(t.Context(), w.DatabaseURL, storetest.Patient)
	testkit.NoError(t, err)
	defer other.Close()
	living, die := context.WithCancel(t.Context())
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() { other.BePresent(living, func() { close(ready) }); close(gone) }()
	<-ready
	w.Exec(`UPDATE payments SET lease_until = now() - interval '1 second' WHERE state = 'unknown'`)
	if rows, err := other.TakeOpenPayments(t.Context(), open, time.Hour); err != nil || len(rows) != 1 {
		t.Fatalf("the other server claims %d payments (%v), want 1", len(rows), err)
	}
	if got := claim(); got != 0 {
		t.Errorf("%d payments of a living server were taken up", got)
	}
	die()
	<-gone
	if !testkit.Eventually(10*time.Second, func() bool { return claim() > 0 }) {
		t.Fatal("the payment of a dead server was not taken up")
	}
}

// TestPaymentWithoutAnOwner: a living server takes up a payment of its own that no request holds, long before its lease is over. It
// does not take up one that a request works on.
func TestPaymentWithoutAnOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	send := func(content string) testkit.Reply { return alice.sends(bob, content) }
	delivered := func() bool { return w.Count(`SELECT count(*) FROM messages WHERE content = 'lost in a failover'`) == 1 }
	var owner int
	settled := w.settleAndThen(testkit.HangUp)
	mend := w.breakFacilitator(func(response http.ResponseWriter, request *http.Request) bool {
		w.Scan(`SELECT max(owner) FROM payments WHERE state = 'settling'`, nil, &owner)
		return settled(response, request)
	})
	send("lost in a failover").Want(t, "the settlement's reply is lost", 503)
	mend()
	const old = `UPDATE payments SET state = 'settling', lease_until = now() + interval '1 hour', updated_at = now() - interval '1 minute'`
	w.Exec(fmt.Sprintf(old+`, owner = %d WHERE state = 'unknown'`, owner))
	var settlements atomic.Int32
	mend = w.breakFacilitator(func(_ http.ResponseWriter, request *http.Request) bool {
		if request.URL.Path == "/settle" && settlements.Add(1) == 1 {
			w.Exec(old + ` WHERE state = 'settling'`)
			if !w.recoverUntil(delivered) {
				t.Error("the payment without an owner was not taken up")
			}
		}
		return false
	})
	send("in work").Want(t, "the call that the server worked on", 200)
	mend()
	if got := settlements.Load(); got != 1 { // what became of the other one is on the chain
		t.Errorf("%d settlements, want 1: the worker took up a payment that a request worked on", got)
	}
}

// TestLongResponsesAreErased: a page of messages is replied again for an hour after its delivery, and not for ever; a short
// reply is.
func TestLongResponsesAreErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	for range 5 {
		alice.send(bob, rand.Text()+rand.Text()+rand.Text()+rand.Text()) // that cannot be compressed much
	}
	calls := []struct{ method, path, body, payment string }{
		{method: http.MethodGet, path: "/agent/unread?mark_read=false"},
		{method: http.MethodGet, path: "/agent/unread"},
		{method: http.MethodPost, path: "/chat/private/send", body: `{"recipient_agent_id":` + quote(alice.ID) + `,"content":"read"}`},
	}
	again := func(i int) testkit.Reply {
		return w.call(calls[i].method, calls[i].path, calls[i].body, "X-API-KEY", bob.Key, x402.HeaderPaymentSignature, calls[i].payment)
	}
	var first []testkit.Reply
	for i := range calls {
		path, _, _ := strings.Cut(calls[i].path, "?")
		calls[i].payment = w.signFor(bob.Wallet, calls[i].method, path)
		first = append(first, again(i))
	}
	if len(first[0].Body) < 1000 {
		t.Fatalf("the page is %s: too short for this test", first[0].Body)
	}
	// erase lets all payments have been delivered so long ago, but for the oldest, which was delivered earlier, and the worker
	// work until so many long replies are left.
	erase := func(ago time.Duration, left int) {
		t.Helper()
		w.Exec(`UPDATE payments SET updated_at = now() - $1::interval
			- CASE WHEN id = (SELECT id FROM payments WHERE operation = 'listUnreadMessages' ORDER BY created_at LIMIT 1) THEN interval '1 hour' ELSE
			interval '0' END`, ago)
		if !w.recoverUntil(func() bool {
			return w.Count(`SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages' AND response IS NOT NULL`) == left
		}) {
			t.Error("the worker does not erase what it should")
		}
	}
	erase(50*time.Minute, 1)
	for i := range calls[1:] {
		if a := again(1 + i); a.Status != http.StatusOK || !bytes.Equal(a.Body, first[1+i].Body) {
			t.Errorf("%s, sent again within the hour: %v, want the stored reply", calls[1+i].path, a)
		}
	}
	erase(70*time.Minute, 0)
	revenue := w.Revenue()
	for i := range 2 {
		if a := again(i); a.Status != http.StatusConflict || !bytes.Contains(a.Body, []byte(`"payment_reused"`)) ||
			!bytes.Contains(a.Body, []byte("no longer stored")) {
			t.Errorf("%s, sent again after the hour: %v, want a 409 that says why", calls[i].path, a)
		}
	}
	if a := again(2); a.Status != http.StatusOK || !bytes.Equal(a.Body, first[2].Body) {
		t.Errorf("%s, sent again after the hour: %v, want the stored reply", calls[2].path, a)
	}
	if w.Revenue() != revenue {
		t.Error("a repetition was charged")
	}
}
