//go:build attack

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// misbehaviour is a fault of the facilitator, and the status that a payment returns meanwhile.
type misbehaviour struct {
	name   string
	fault  fault
	status int
}

const unknown, refused, paid = http.StatusServiceUnavailable, http.StatusPaymentRequired, http.StatusOK

func misbehaviours() []misbehaviour {
	const transaction = "0x1212121212121212121212121212121212121212121212121212121212121212"
	settled := func(network, transaction string) string {
		return fmt.Sprintf(`{"success":true,"transaction":%q,"network":%q,"payer":"0x1"}`, transaction, network)
	}
	refusal := `{"success":false,"errorReason":"invalid_transaction_state","transaction":"","network":"eip155:84532"}`
	pending := fmt.Sprintf(`{"success":false,"errorReason":"settlement_pending","transaction":%q,"network":"eip155:84532"}`, transaction)
	return []misbehaviour{
		{"refuses", respond(200, refusal), refused},
		{"refuses with status 400", respond(400, refusal), refused},
		{"refuses with status 500", respond(500, refusal), refused},
		{"HTML, not moved", respond(200, "<html>welcome</html>"), unknown},
		{"HTML, moved", respondAfter(200, "<html>welcome</html>"), unknown},
		{"nothing, not moved", respond(200, ""), unknown},
		{"nothing, moved", respondAfter(200, ""), unknown},
		{"204, moved", respondAfter(204, ""), unknown},
		{"500, not moved", respond(500, `{"error":"oops"}`), unknown},
		{"500, moved", respondAfter(500, `{"error":"oops"}`), unknown},
		{"502 of a gateway, moved", respondAfter(502, "<html>bad gateway</html>"), unknown},
		{"401, not moved", respond(401, `{"error":"who are you?"}`), unknown},
		{"a redirect, moved", respondAfter(302, settled("eip155:84532", transaction)), unknown},
		{"pending, and pending again", respond(200, pending), unknown},
		{"pending, then moved", func(c *call) {
			if c.number%2 == 1 {
				c.write(200, pending)
				return
			}
			dropAfter(c)
		}, unknown},
		{"a very slow reply", delayed(12*time.Second, pass), paid},
		{"hangs up, not moved", dropBefore, unknown},
		{"hangs up, moved", dropAfter, unknown},
		{"cut in the middle, moved", cutAfter, unknown},
		{"two megabytes, moved", respondAfter(200, `{"x":"`+strings.Repeat("x", 2<<20)+`"}`), unknown},
		{"success as a text, not moved", respond(200, strings.Replace(settled("eip155:84532", transaction), "true", `"true"`, 1)), unknown},
		{"success of 1, not moved", respond(200, strings.Replace(settled("eip155:84532", transaction), "true", "1", 1)), unknown},
		{"only isValid, not moved", respond(200, `{"isValid":true}`), unknown},
		{"null, not moved", respond(200, "null"), unknown},
		{"an empty transaction, moved", respondAfter(200, settled("eip155:84532", "")), unknown},
		{"an empty transaction, not moved", respond(200, settled("eip155:84532", "")), unknown},
		{"no network, moved", respondAfter(200, fmt.Sprintf(`{"success":true,"transaction":%q}`, transaction)), unknown},
		{"another network, not moved", respond(200, settled("eip155:1", transaction)), unknown},
		{"another network, moved", respondAfter(200, settled("eip155:1", transaction)), unknown},
	}
}

// TestFacilitatorMisbehaves: a 402 only on a definite refusal, no effect without money, no money without effect. Each
// fault meets two payments: one is sent again by its caller, the other is left to the server. The slow reply takes 12 s:
// longer than a copy of the payment waits (5 s) and than /verify may take (10 s); the server's own patience with /settle,
// 90 s, is not waited for.
func TestFacilitatorMisbehaves(t *testing.T) {
	t.Parallel()
	for _, test := range misbehaviours() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.serve()
			alice, bob := s.agent("alice"), s.agent("bob")
			revenue := w.Revenue()
			again, left := alice.says(bob, "sent again"), alice.says(bob, "left alone")
			w.proxy.breakWith(onSettle(test.fault))
			for _, o := range []order{again, left} {
				r := s.pay(o)
				if r.Status != test.status || r.Charged {
					t.Errorf("replied %v, want %d", r, test.status)
				}
				if test.status == unknown && (r.Code != "payment_unknown" || r.Header.Get("Retry-After") == "") {
					t.Errorf("replied %v, Retry-After %q, want payment_unknown with a time to come again", r, r.Header.Get("Retry-After"))
				}
				if n := w.messages(o.content); (n == 1) != (test.status == paid) {
					t.Errorf("replied %d, and the message is there %d times", r.Status, n)
				}
			}
			w.proxy.mend()
			if r := s.insist(again); r.Status != map[bool]int{true: refused, false: paid}[test.status == refused] {
				t.Errorf("sent again: %v", r)
			}
			w.check()
			want := uint64(2)
			if test.status == refused {
				want = 0
			}
			if charged, n := w.Revenue()-revenue, w.messages(again.content)+w.messages(left.content); charged != want*again.price || n != int(want) {
				t.Errorf("in the end %d messages for %d, want %d for %d", n, charged, want, want*again.price)
			}
		})
	}
}

// TestFacilitatorMisbehavesAtVerify: only the signatures that the server cannot judge itself are asked about, those of
// smart wallets. Whatever the reply, nothing moves and nothing is delivered before /settle has said yes.
func TestFacilitatorMisbehavesAtVerify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	const unavailable, refused = http.StatusServiceUnavailable, http.StatusPaymentRequired
	for _, test := range []struct {
		name   string
		verify fault
		status int
	}{
		{"isValid false", respond(200, `{"isValid":false,"invalidReason":"invalid_exact_evm_signature"}`), refused},
		{"isValid false with status 500", respond(500, `{"isValid":false,"invalidReason":"invalid_exact_evm_signature"}`), refused},
		{"isValid as a text", respond(200, `{"isValid":"true"}`), unavailable},
		{"no isValid", respond(200, `{"payer":"0x1"}`), unavailable},
		{"HTML", respond(200, "<html>welcome</html>"), unavailable},
		{"nothing", respond(200, ""), unavailable},
		{"500", respond(500, ""), unavailable},
		{"hangs up", dropBefore, unavailable},
		{"a redirect", respond(302, `{"isValid":true}`), unavailable},
		{"too slow", delayed(12*time.Second, respond(200, `{"isValid":true}`)), unavailable},
		{"isValid true, and then refused by the real facilitator", respond(200, `{"isValid":true,"payer":"0x1"}`), refused},
	} {
		revenue := w.Revenue()
		w.proxy.breakWith(func(c *call) {
			if c.path != "/verify" {
				pass(c)
				return
			}
			test.verify(c)
		})
		o := alice.says(bob, "by a smart wallet")
		o.payment.Payload.Signature = "0x" + strings.Repeat("ab", 130)
		o.header = w.Encode(o.payment)
		r := s.pay(o)
		if r.Status != test.status || r.Charged {
			t.Errorf("/verify: %s: %v, want %d", test.name, r, test.status)
		}
		if test.status == unavailable && r.Header.Get("Retry-After") == "" {
			t.Errorf("/verify: %s: no Retry-After", test.name)
		}
		if w.Revenue() != revenue || w.messages(o.content) != 0 {
			t.Errorf("/verify: %s: charged %d for %d messages", test.name, w.Revenue()-revenue, w.messages(o.content))
		}
	}
	w.proxy.mend()
	w.check()
}

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
	if _, malformed := x402.DecodePaymentRequired(r.Header.Get(x402.HeaderPaymentRequired)); err != nil || malformed != nil || r.Status != http.StatusPaymentRequired {
		t.Errorf("without the facilitator the price: %v %v %v, want 402", r, err, malformed)
	}
}

// mustSayComeAgain fails the test if the order is not replied 503 with Retry-After within 2 s, and one for a machine that
// is busy with the other tests.
func (s *server) mustSayComeAgain(t *testing.T, o order) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if r, err := s.send(ctx, o); err != nil || r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("a payment without the facilitator: %v %v, want 503 with Retry-After within 2 s", r, err)
	}
	if n := s.w.messages(o.content); n != 0 || s.w.used(o) {
		t.Errorf("without the facilitator there are %d messages, money moved: %v", n, s.w.used(o))
	}
}

// TestFacilitatorDownAtBoot: the server comes up without it, and needs nobody when it comes up, too.
func TestFacilitatorDownAtBoot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	s.stop()
	w.proxy.close()
	s.start("")
	s.mustServeFree(t)
	again, left := alice.says(bob, "sent again"), alice.says(bob, "left alone")
	s.mustSayComeAgain(t, again)
	s.mustSayComeAgain(t, left)
	s.mustSayComeAgain(t, again)
	w.proxy.open()
	s.insist(again).Want(t, "sent again when the facilitator is there", 200)
	s.pay(alice.says(bob, "a new one")).Want(t, "a new payment when the facilitator is there", 200)
	w.check()
	if n := w.messages(left.content); n > 1 || (n == 1) != w.used(left) {
		t.Errorf("the payment that was left alone: %d messages, money moved: %v", n, w.used(left))
	}
}

// TestFacilitatorPortClosed: the facilitator's port is closed while the server runs.
func TestFacilitatorPortClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for range 3 {
		w.proxy.close()
		s.mustServeFree(t)
		again, left := alice.says(bob, "sent again"), alice.says(bob, "left alone")
		s.mustSayComeAgain(t, again)
		s.mustSayComeAgain(t, left)
		w.proxy.open()
		s.insist(again).Want(t, "sent again when the facilitator is back", 200)
		w.check()
	}
}

// TestFacilitatorSilent: the facilitator accepts connections and never replies.
func TestFacilitatorSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for range 3 {
		w.proxy.stopResponding()
		again, left := alice.says(bob, "sent again"), alice.says(bob, "left alone")
		for range 4 { // in the end nobody asks it any more, and the reply is the same
			s.mustSayComeAgain(t, again)
			s.mustSayComeAgain(t, left)
		}
		s.mustServeFree(t)
		w.proxy.mend()
		s.insist(again).Want(t, "sent again when the facilitator is back", 200)
		w.check()
	}
}

// TestFacilitatorAndChainSilent: neither the facilitator nor the chain's endpoint replies.
func TestFacilitatorAndChainSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	endpoint, calls := silentPort(t)
	s := w.serve("--rpc-url", endpoint)
	alice, bob := s.agent("alice"), s.agent("bob") // whom the facilitator vouches for
	w.proxy.stopResponding()
	o := alice.says(bob, "while nobody responds, twice")
	for range 4 { // 409 while the recovery worker waits for the chain
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		r, err := s.send(ctx, o)
		cancel()
		again := r.Status == http.StatusServiceUnavailable || r.Code == "payment_in_progress"
		if err != nil || !again || r.Header.Get("Retry-After") == "" {
			t.Errorf("a payment without facilitator and chain: %v %v, want 503 or 409 payment_in_progress with Retry-After", r, err)
		}
	}
	if calls.Load() == 0 {
		t.Error("nobody asked the chain")
	}
	s.mustServeFree(t)
	s.kill()
	w.proxy.mend()
	s.flags = nil // the endpoint is back, too
	s.start("")
	s.insist(o).Want(t, "sent again when both are back", 200)
	w.check()
	w.arrivedOnce(o)
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
	if r := s.call(http.MethodPost, "/chat/private/send", orders[0].body, "X-API-KEY", "parley_nonsense", x402.HeaderPaymentSignature, orders[0].header); r.Status != http.StatusUnauthorized {
		t.Errorf("a wrong key while the facilitator is silent: %v, want 401", r)
	}
	// A copy does not wait for long: its caller is told to come again.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := s.send(ctx, orders[0]); err != nil || r.Status != http.StatusConflict || r.Code != "payment_in_progress" || r.Header.Get("Retry-After") == "" {
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

// TestKilledWhileFacilitatorSilent: the server is killed while the facilitator is silent.
func TestKilledWhileFacilitatorSilent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	w.proxy.breakWith(silent)
	o := alice.says(bob, "while nobody responds")
	reached := w.proxy.count("/settle") + 1
	go func() { _, _ = s.send(t.Context(), o) }()
	testkit.Eventually(10*time.Second, func() bool { return w.proxy.count("/settle") >= reached })
	s.restart("")
	s.mustServeFree(t) // the recovery worker hangs at the facilitator now, and nobody else does
	s.kill()
	w.proxy.mend()
	s.start("")
	w.check()
	w.arrivedOnce(o)
}

// silentPort is an address that takes requests and responds to none of them; calls counts them.
func silentPort(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		<-done
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(done) })
	return server.URL, calls
}

// TestExpiredMeanwhile: the facilitator comes back when the payment cannot be settled any more. Nothing was taken, and
// where that is certain the payment is closed.
func TestExpiredMeanwhile(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		stop, start func(p *proxy)
		state       string
	}{
		{"it never heard of the payment", (*proxy).close, (*proxy).open, ""}, // so nothing was begun
		{"the chain never heard of the payment", func(p *proxy) { p.breakWith(onSettle(dropBefore)) }, (*proxy).mend, "failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := w.serve()
			alice, bob := s.agent("alice"), s.agent("bob")
			soon := time.Now().Add(x402.MinimumValidity + 3*time.Second)
			brief := func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = fmt.Sprint(soon.Unix()) }
			again, left := alice.says(bob, "sent again", brief), alice.says(bob, "left alone", brief)
			test.stop(w.proxy)
			for _, o := range []order{again, left} {
				s.pay(o).Want(t, "a payment without the facilitator", 503)
			}
			time.Sleep(time.Until(soon) + time.Second)
			test.start(w.proxy)
			s.insist(again).Want(t, "sent again after it expired", 402)
			w.check()
			if n := w.messages(again.content) + w.messages(left.content); n != 0 || w.used(again) || w.used(left) {
				t.Errorf("%d messages, money moved: %v %v, want nothing of both", n, w.used(again), w.used(left))
			}
			for _, o := range []order{again, left} {
				if state := w.state(o); state != test.state {
					t.Errorf("an expired payment is %q, want %q", state, test.state)
				}
			}
		})
	}
}

// TestExpiredAfterItMoved: the money moved, the reply was lost, and when the facilitator can be asked again it only says
// that the payment has expired. That is no refusal; the chain's word decides.
func TestExpiredAfterItMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	o := s.movedAndExpired(alice, bob)
	s.insist(o).Want(t, "sent again after it expired", 200)
	w.check()
	w.arrivedOnce(o)
}

// movedAndExpired pays for a message: the money moves, the reply is lost, and the facilitator is back when the payment has
// expired.
func (s *server) movedAndExpired(alice, bob *agent) order {
	w, t := s.w, s.w.T
	t.Helper()
	soon := time.Now().Add(x402.MinimumValidity + 3*time.Second)
	o := alice.says(bob, "moved and expired", func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = fmt.Sprint(soon.Unix()) })
	w.proxy.breakWith(onSettle(dropAfter))
	if r := s.pay(o); r.Status != http.StatusServiceUnavailable || !w.used(o) {
		t.Fatalf("a lost reply: %v, money moved: %v, want 503 and true", r, w.used(o))
	}
	time.Sleep(time.Until(soon) + time.Second)
	w.proxy.mend()
	return o
}

// TestExpiredAndTheChainUnavailable: as before, but the chain's endpoint replies nothing, so that the operator decides.
func TestExpiredAndTheChainUnavailable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve("--rpc-url", "http://127.0.0.1:9")
	alice, bob := s.agent("alice"), s.agent("bob")
	o := s.movedAndExpired(alice, bob)
	for range 3 {
		if r := s.pay(o); r.Status != http.StatusServiceUnavailable && r.Code != "payment_in_progress" {
			t.Errorf("sent again after it expired: %v, want 503", r)
		}
		time.Sleep(time.Second)
	}
	var id uuid.UUID
	if state := w.state(o); state != "unknown" {
		t.Fatalf("the payment is %q, want unknown", state)
	}
	w.Scan("SELECT id FROM payments WHERE state = 'unknown'", nil, &id)
	database, err := store.Open(t.Context(), w.DatabaseURL, store.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	if !testkit.Eventually(recoveryTime, func() bool {
		return database.ResolveSettled(t.Context(), id, "0x"+strings.Repeat("12", 32)) == nil // not while the worker is at it
	}) {
		t.Error("the payment cannot be resolved")
	}
	s.insist(o).Want(t, "sent again after the operator's word", 200)
	w.check()
	w.arrivedOnce(o)
}

// TestCallerHangsUp: whatever was begun is finished, at whichever moment the caller goes, and sending it again gives the
// reply.
func TestCallerHangsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	for range rounds(t) {
		o := alice.says(bob, "I am gone during the settlement")
		hold := w.proxy.hold(1, false)
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := s.send(ctx, o)
			gone <- err
		}()
		hold.await(t)
		hangUp()
		if err := <-gone; err == nil {
			t.Fatal("the caller did not hang up")
		}
		hold.release()
		if r := s.insist(o); r.Status != http.StatusOK || w.messages(o.content) != 1 {
			t.Errorf("sent again: %v with %d messages, want 200 with one", r, w.messages(o.content))
		}
	}
	w.check()

	left := make([]order, 5*rounds(t))
	var group sync.WaitGroup
	for i := range left {
		left[i] = alice.says(bob, "I am gone at any moment")
		group.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(40_000))*time.Microsecond)
			defer cancel()
			_, _ = s.send(ctx, left[i])
		})
	}
	group.Wait()
	w.check()
	for _, o := range left {
		if n := w.messages(o.content); n > 1 || (n == 1) != w.used(o) {
			t.Errorf("the caller hung up: %d messages, money moved: %v", n, w.used(o))
		}
		if r := s.insist(o); r.Status != http.StatusOK || w.messages(o.content) != 1 {
			t.Errorf("sent again: %v with %d messages, want 200 with one", r, w.messages(o.content))
		}
	}
	w.check()
}

// cancel cancels an authorization on the chain, as its payer can at any time before it is used.
func (w *world) cancel(by *agent, o order) {
	w.T.Helper()
	domain, err := x402.DomainOf(o.payment.Accepted)
	if err != nil {
		w.T.Fatal(err)
	}
	a := o.payment.Payload.Authorization
	signature, err := x402test.SignCancellation(by.wallet, domain, a.From, a.Nonce)
	if err != nil {
		w.T.Fatal(err)
	}
	body, err := json.Marshal(map[string]string{"authorizer": a.From, "nonce": a.Nonce, "signature": signature})
	if err != nil {
		w.T.Fatal(err)
	}
	response, err := http.Post(w.proxy.url+"/cancel", "application/json", bytes.NewReader(body))
	if err != nil {
		w.T.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		w.T.Fatalf("cancel an authorization: %d, want 200", response.StatusCode)
	}
}

// TestCancelledAuthorization: the payer takes the authorization back on the chain while the server is about to settle it.
func TestCancelledAuthorization(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	revenue := w.Revenue()
	free := func(o order, what string) {
		t.Helper()
		if n := w.messages(o.content); n != 0 || w.Revenue() != revenue {
			t.Errorf("%s: %d messages, charged %d, want nothing", what, n, w.Revenue()-revenue)
		}
	}
	for range rounds(t) {
		o := alice.says(bob, "cancelled between dry run and settlement")
		r := w.proxy.whileSettling(t, false, func(ctx context.Context) (testkit.Reply, error) { return s.send(ctx, o) }, func() { w.cancel(alice, o) })
		if r.Status != http.StatusPaymentRequired {
			t.Errorf("cancelled before the settlement: %v, want 402", r)
		}
		free(o, "cancelled before the settlement")
		s.pay(o).Want(t, "the cancelled payment again", 402)
		free(o, "the cancelled payment again")
	}
	before := alice.says(bob, "cancelled before it was sent")
	w.cancel(alice, before)
	for range 2 {
		s.pay(before).Want(t, "cancelled before it was sent", 402)
	}
	free(before, "cancelled before it was sent")
	// The facilitator could not even be reached with it, so that "used" cannot mean our own settlement.
	unsent := alice.says(bob, "cancelled while the facilitator was unavailable")
	w.proxy.close()
	s.mustSayComeAgain(t, unsent)
	w.cancelBehind(alice, unsent)
	w.proxy.open()
	s.insist(unsent).Want(t, "cancelled while the facilitator was unavailable", 402)
	free(unsent, "cancelled while the facilitator was unavailable")
	for _, resend := range []bool{true, false} {
		unclear := alice.says(bob, "cancelled while the outcome was not known")
		w.proxy.breakWith(onSettle(dropBefore))
		s.pay(unclear).Want(t, "an unclear settlement", 503)
		w.cancel(alice, unclear)
		w.proxy.mend()
		if resend {
			s.insist(unclear).Want(t, "cancelled while the outcome was not known", 402)
		}
		w.check()
		free(unclear, "cancelled while the outcome was not known")
	}
	w.check()
}

// cancelBehind cancels an authorization while the facilitator's port is closed: the chain is still there.
func (w *world) cancelBehind(by *agent, o order) {
	w.T.Helper()
	if err := w.Ledger.Cancel(testkit.Address(by.wallet), o.payment.Payload.Authorization.Nonce); err != nil {
		w.T.Fatal(err)
	}
}
