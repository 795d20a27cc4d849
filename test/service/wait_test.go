package service

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// polls gets the agent's unread messages with a query and a payment.
func (a *agent) polls(query, payment string) testkit.Reply {
	a.w.T.Helper()
	return a.w.call(http.MethodGet, unreadPath+query, "", "X-API-KEY", a.Key, x402.HeaderPaymentSignature, payment)
}

// signsPoll makes a payment of scheme exact for a poll.
func (a *agent) signsPoll(changes ...func(*x402.PaymentPayload)) string {
	a.w.T.Helper()
	return a.w.signFor(a.Wallet, http.MethodGet, unreadPath, changes...)
}

// waits polls in the background, and returns when the server holds so many calls.
func (a *agent) waits(query, payment string, held int) chan testkit.Reply {
	a.w.T.Helper()
	replies := make(chan testkit.Reply, 1)
	go func() {
		reply, err := a.w.try(http.MethodGet, unreadPath+query, "", "X-API-KEY", a.Key, x402.HeaderPaymentSignature, payment)
		if err != nil {
			a.w.T.Error(err)
		}
		replies <- reply
	}()
	a.w.holds(held)
	return replies
}

// holds waits until so many calls wait at the server.
func (w *world) holds(calls int) {
	w.T.Helper()
	if !testkit.Eventually(20*time.Second, func() bool { return w.heldCalls() == strconv.Itoa(calls) }) {
		w.T.Fatalf("%s calls wait, want %d", w.heldCalls(), calls)
	}
}

func (w *world) heldCalls() string {
	for line := range strings.Lines(w.admin("/metrics")) {
		if held, ok := strings.CutPrefix(line, "parley_waits "); ok {
			return strings.TrimSpace(held)
		}
	}
	return "no"
}

// isPage requires a page with so many messages and notices, and returns its cursor.
func isPage(t testing.TB, what string, reply testkit.Reply, messages, notices int) (cursor string) {
	t.Helper()
	reply.Require(t, what, http.StatusOK)
	if got := bytes.Count(reply.Body, []byte(`"message_id"`)); got != messages {
		t.Errorf("%s: %d messages, want %d", what, got, messages)
	}
	if got := bytes.Count(reply.Body, []byte(`"actor_id"`)); got != notices {
		t.Errorf("%s: %d notices, want %d", what, got, notices)
	}
	return reply.Field(t, "cursor")
}

// TestWait: a call waits until a message or a notice is committed, with either scheme. It costs once, and its payment returns the same
// response again.
func TestWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	isPage(t, "alice has nothing", alice.polls("?wait=1", alice.signsPoll()), 0, 0)
	chat := alice.createGroup("planners", bob)
	news := bob.channel("news")
	alice.must("/channel/subscribe", fields{"channel_id": news})
	charged := uint64(5000)
	for _, of := range []struct {
		what              string
		happens           func()
		messages, notices int
	}{
		{"a private message", func() { bob.send(alice, "hello") }, 1, 0},
		{"a notice", func() {
			bob.must("/channel/transfer", fields{"channel_id": bob.channel("other news"), "new_admin_agent_id": alice.ID})
		}, 0, 1},
		{"a message in a group chat", func() { bob.sendGroup(chat, "a plan") }, 1, 0},
		{"a message in a channel", func() { bob.broadcast(news, "fog") }, 1, 0},
	} {
		for _, scheme := range []string{"exact", "channel"} {
			calls := w.Count("SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages'")
			var payment string
			if scheme == "exact" {
				payment = alice.signsPoll()
			} else {
				charged += 1000
				payment = payer.signGet(unreadPath, charged)
			}
			replies := alice.waits("?wait=30", payment, 1)
			began := time.Now()
			of.happens()
			reply := <-replies
			isPage(t, of.what+" with "+scheme, reply, of.messages, of.notices)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s with %s: the call returned %s after it began to happen", of.what, scheme, took)
			}
			again := alice.polls("?wait=30", payment)
			if !bytes.Equal(again.Body, reply.Body) || again.Header.Get("Idempotent-Replayed") != "true" {
				t.Errorf("%s with %s: the same payment returns %v, want %v", of.what, scheme, again, reply)
			}
			if paid := w.Count("SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages'") - calls; paid != 1 {
				t.Errorf("%s with %s: %d payments", of.what, scheme, paid)
			}
		}
	}
	w.checkChannels()
	w.holds(0)
}

// TestWaitCostsNothingBefore: a caller that hangs up pays nothing and loses nothing, with either scheme, and its payment is good for the
// next call. A payment that cannot be made does not wait.
func TestWaitCostsNothingBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	payments := w.Count("SELECT count(*) FROM payments")
	for _, payment := range []string{alice.signsPoll(), payer.signGet(unreadPath, 6000)} {
		ctx, hangUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := testkit.Request(ctx, w.http, http.MethodGet, w.url+unreadPath+"?wait=60", "", "X-API-KEY", alice.Key,
				x402.HeaderPaymentSignature, payment)
			ended <- err
		}()
		w.holds(1)
		hangUp()
		if err := <-ended; err == nil {
			t.Error("the call returned although its caller hung up")
		}
		w.holds(0)
	}
	if now := w.Count("SELECT count(*) FROM payments"); now != payments {
		t.Errorf("calls whose callers hung up have made %d payments", now-payments)
	}
	bob.send(alice, "hello")
	voucher := payer.signGet(unreadPath, 6000)
	isPage(t, "the voucher of the wait", alice.polls("", voucher), 1, 0)

	alice.polls("?wait=60", payer.signGet(unreadPath, 9000)).WantRefused(t, "a voucher that does not fit", http.StatusPaymentRequired)
	poor := w.signFor(w.Wallet(0), http.MethodGet, unreadPath)
	alice.polls("?wait=60", poor).WantRefused(t, "an empty wallet", http.StatusPaymentRequired)
	alice.polls("?wait=61", alice.signsPoll()).WantRefused(t, "61 seconds", http.StatusBadRequest)
	w.call(http.MethodGet, unreadPath+"?wait=60", "").WantRefused(t, "no payment", http.StatusPaymentRequired, "payment_required")
	w.call(http.MethodGet, unreadPath+"?wait=60", "", "X-API-KEY", alice.Key+"x", x402.HeaderPaymentSignature, alice.signsPoll()).
		WantRefused(t, "a wrong key", http.StatusUnauthorized)
}

// TestWaitEndsBeforeThePayment: a call does not wait longer than its authorization can still settle.
func TestWaitEndsBeforeThePayment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	began := time.Now()
	isPage(t, "a short authorization", alice.polls("?wait=60", alice.signsPoll(func(p *x402.PaymentPayload) {
		p.Payload.Authorization.ValidBefore = strconv.FormatInt(time.Now().Add(25*time.Second).Unix(), 10)
	})), 0, 0)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the call returned after %s, and its authorization was good for 25 s", took)
	}
}

// TestWaitChecksTheKeyAgain: a key that is replaced, or an account that is suspended, while a call waits, pays nothing.
func TestWaitChecksTheKeyAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	payments := w.Count("SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages'")
	old := alice.Key
	replies := alice.waits("?wait=30", alice.signsPoll(), 1)
	key := alice.must("/agent/rotate_key", fields{}).Field(t, "api_key")
	w.Secret(key)
	bob.send(alice, "hello")
	(<-replies).WantRefused(t, "a replaced key", http.StatusUnauthorized, "invalid_api_key")
	if alice.Key = key; old == key {
		t.Error("the key is the same")
	}
	if now := w.Count("SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages'"); now != payments {
		t.Errorf("%d payments were made", now-payments)
	}
}

// TestSecondWait: the newest call of an account waits. The older one ends without a charge, and says so unless it is the same payment. Then
// the account has to make room in a full room.
func TestSecondWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *server.Config, chain *payment.Chain, url string) {
		withChannels(c, chain, url)
		c.Limits.Connections = 3 // two may wait
	})
	alice, bob, payer := w.openChannel()
	carol := w.agent("carol")
	voucher := payer.signGet(unreadPath, 6000)
	first := alice.waits("?wait=60", voucher, 1)
	second := alice.waits("?wait=60", voucher, 1)
	(<-first).Want(t, "a copy", http.StatusConflict, "payment_in_progress")
	third := alice.waits("?wait=60", alice.signsPoll(), 1)
	replaced := <-second
	replaced.WantRefused(t, "the older call of the account", http.StatusConflict, "payment_in_progress")
	if replaced.Header.Get("Retry-After") == "" {
		t.Error("the 409 has no Retry-After")
	}
	isPage(t, "bob reads", bob.polls("?wait=60", bob.signsPoll()), 1, 0)
	others := bob.waits("?wait=60", bob.signsPoll(), 2)
	carols := carol.waits("?wait=60", carol.signsPoll(), 2)
	for what, full := range map[string]testkit.Reply{"displaced": <-third, "a full room": alice.polls("?wait=60", alice.signsPoll())} {
		full.WantRefused(t, what, http.StatusServiceUnavailable, "unavailable")
		if full.Header.Get("Retry-After") == "" {
			t.Errorf("%s: the 503 has no Retry-After", what)
		}
	}
	for range 20 {
		alice.polls("?wait=60", voucher).WantRefused(t, "a full room", http.StatusServiceUnavailable, "unavailable")
	}
	if health := w.call(http.MethodGet, "/health", ""); health.Field(t, "status") != "OK" {
		t.Errorf("calls that find the room full count as failures: %v", health)
	}
	isPage(t, "a call that does not wait", alice.polls("", alice.signsPoll()), 0, 0)
	alice.send(carol, "one")
	alice.send(bob, "two")
	isPage(t, "carol", <-carols, 1, 0)
	isPage(t, "bob", <-others, 1, 0)
	if bills := w.Count("SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages' AND state = 'delivered'"); bills != 4 {
		t.Errorf("%d polls were charged, want four", bills)
	}
}

// TestVoucherIsUsedWhileItWaits: another call with the payment channel is not held up. It ends the waiting call, which is not charged and
// returns the state of the payment channel.
func TestVoucherIsUsedWhileItWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	replies := alice.waits("?wait=60", payer.signGet(unreadPath, 6000), 1)
	other := payer.sign(sendPath, 10_000, 0)
	alice.sendWith(other, bob, "meanwhile").Require(t, "another call", http.StatusOK)
	if _, state, _ := correctionOf(t, <-replies); state.ChargedCumulativeAmount != "10000" {
		t.Errorf("the correction says %+v", state)
	}
	replies = alice.waits("?wait=60", payer.signGet(unreadPath, 11_000), 1)
	alice.sendWith(other, bob, "meanwhile").Require(t, "another call once more, which charges nothing", http.StatusOK)
	bob.send(alice, "hello")
	isPage(t, "the next voucher", <-replies, 1, 0)
	w.checkChannels()
}

// TestStoppingEndsWaits: a server that stops returns what waits at once. While it drains, next polls with wait are not charged for empty
// pages one after the other.
func TestStoppingEndsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(config *server.Config, _ *payment.Chain, _ string) { config.DrainTime = 3 * time.Second })
	alice := w.agent("alice")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, listener) }()
	w.url = "http://" + listener.Addr().String()
	replies := alice.waits("?wait=60", alice.signsPoll(), 1)
	began := time.Now()
	stop()
	isPage(t, "a server that stops", <-replies, 0, 0)
	next := alice.signsPoll()
	payments := w.Count("SELECT count(*) FROM payments")
	for range 3 {
		alice.polls("?wait=60", next).WantRefused(t, "a poll while it drains", http.StatusServiceUnavailable, "unavailable")
	}
	if now := w.Count("SELECT count(*) FROM payments"); now != payments {
		t.Errorf("polls while the server drains made %d payments", now-payments)
	}
	if err := <-ended; err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("the server stops with %v after %s", err, time.Since(began))
	}
}

// TestWaitOutlastsTheTimesOfRequests: a call waits longer than a request may take to arrive.
func TestWaitOutlastsTheTimesOfRequests(t *testing.T) {
	t.Parallel()
	testkit.Long(t)
	w := newWorld(t)
	alice := w.agent("alice")
	w.listen()
	began := time.Now()
	isPage(t, "twelve seconds", alice.polls("?wait=12", alice.signsPoll()), 0, 0)
	if took := time.Since(began); took < 12*time.Second {
		t.Errorf("the call returned after %s", took)
	}
}

// at is the agent at another server, with another wallet.
func (a *agent) at(w *world) *agent {
	a.w.T.Helper()
	there := &agent{testkit.NewAgent(w.T, w.url, w.Wallet(100*testkit.Dollar), testkit.Sparing, w.http.Transport, nil), w}
	there.Name, there.ID, there.Key = a.Name, a.ID, a.Key
	return there
}

// TestWaitOverTwoServers: what one server commits ends a wait at another.
func TestWaitOverTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	other := w.beside()
	other.listen()
	w.listen() // hears what other servers announce
	chat := alice.createGroup("planners", bob)
	isPage(t, "the notice", bob.polls("", bob.signsPoll()), 0, 1)
	bob.groupMust("messages", chat)
	there := alice.at(other)
	for what, happens := range map[string]func(){
		"a private message": func() { there.send(bob, "hello") }, "a group message": func() { there.sendGroup(chat, "a plan") },
	} {
		replies := bob.waits("?wait=30", bob.signsPoll(), 1)
		happens()
		isPage(t, what, <-replies, 1, 0)
	}
}
