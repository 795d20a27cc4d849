package service

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// TestEmptyWalletsGetNoWork: a wallet that cannot pay gets neither a dry run nor a row, and the facilitator no call.
func TestEmptyWalletsGetNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	var asked atomic.Int64
	defer w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/rpc" {
			asked.Add(1)
		}
		return false
	})()
	rows, registrations := w.Count(`SELECT count(*) FROM payments`), w.Count(`SELECT count(*) FROM registrations`)
	if !testkit.Eventually(20*time.Second, func() bool { // on a busy machine the chain may not say in time what a wallet has
		asked.Store(0)
		for range 5 {
			empty := w.Wallet(0)
			for _, a := range []testkit.Reply{
				w.pay(empty, "/chat/private/send", `{"recipient_agent_id":`+quote(bob.ID)+`,"content":"for nothing"}`, "X-API-KEY", alice.Key),
				// The rules would refuse this with 409: whoever cannot pay does not learn it.
				w.pay(empty, "/register/request_account", `{"requested_username":"alice"}`),
			} {
				a.WantRefused(t, "a wallet without money", 402)
			}
		}
		return asked.Load() == 0
	}) {
		t.Errorf("the facilitator was called %d times", asked.Load())
	}
	if w.Count(`SELECT count(*) FROM payments`) != rows || w.Count(`SELECT count(*) FROM registrations`) != registrations {
		t.Error("wallets without money have left rows")
	}
}

// TestFailedPaymentsAreForgotten: a payment that was refused leaves no row for good. As long as its authorization can be used,
// and a transaction that failed may have shown it to everybody, the ledger knows it.
func TestFailedPaymentsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	send := w.sendOnCredit(alice, bob)
	send().Require(t, "on credit", 402)
	const failed = `SELECT count(*) FROM payments WHERE state = 'failed'`
	if w.Count(failed) != 1 {
		t.Fatal("the refusal is not in the ledger")
	}
	w.Exec(`UPDATE payments SET updated_at = now() - interval '61 minutes' WHERE state = 'failed'`)
	if _, err := w.store.CleanUp(t.Context(), 100); err != nil || w.Count(failed) != 1 {
		t.Errorf("a failed payment whose authorization is valid is forgotten (%v)", err)
	}
	w.Exec(`UPDATE payments SET valid_before = now() - interval '1 second' WHERE state = 'failed'`)
	if !w.recoverUntil(func() bool { return w.Count(failed) == 0 }) {
		t.Error("a failed payment stays in the ledger")
	}
}

// TestFacilitatorQuota: a facilitator that replies 429 has not settled: the caller comes again, nothing is left open, and the
// facilitator is left alone for as long as it wants.
func TestFacilitatorQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	rows := w.Count(`SELECT count(*) FROM payments`)
	var asked atomic.Int64
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/settle" {
			return false
		}
		asked.Add(1)
		rw.Header().Set("Retry-After", "3")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	})
	payment := w.sign(alice.Wallet, "/chat/private/send")
	send := func() testkit.Reply { return alice.sendWith(payment, bob, "a little later") }
	begin := time.Now()
	for range 5 {
		a := send()
		a.WantRefused(t, "when the quota is used up", 503, "unavailable")
		if after, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || after < 1 || after > 3 {
			t.Errorf("Retry-After is %d (%v), want what is left of the facilitator's 3 seconds", after, err)
		}
	}
	if n, most := asked.Load(), 1+int64(time.Since(begin)/(3*time.Second)); n < 1 || n > most {
		t.Errorf("/settle was called %d times, want at most %d: the facilitator wanted to be left alone", n, most)
	}
	if w.Count(`SELECT count(*) FROM payments`) != rows {
		t.Error("a payment that was not sent is in the ledger")
	}
	mend()
	time.Sleep(3 * time.Second)
	send().Want(t, "when the facilitator listens again", 200)
}

// TestAuthorizationReadFromTheChain: one that stood on the chain before it came here buys nothing, whoever sends it; one that
// somebody else settles while it is on its way here is delivered.
func TestAuthorizationReadFromTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	transfer := func() (payment string) {
		t.Helper()
		var signed x402.Authorization
		payment = w.sign(alice.Wallet, "/chat/private/send", func(p *x402.PaymentPayload) { signed = p.Payload.Authorization })
		w.transfer(signed, 5000)
		return payment
	}
	send := func(payment, content string) testkit.Reply { return alice.sendWith(payment, bob, content) }
	revenue := w.Revenue()
	send(transfer(), "front-run").Want(t, "settled by somebody else a moment ago", 200)
	if w.Revenue() != revenue+5000 {
		t.Errorf("charged %d, want 5000", w.Revenue()-revenue)
	}
	public := transfer()
	old := w.beside(func(_ *server.Config, chain *payment.Chain, _ string) { *chain = earlier{*chain} })
	old.call(http.MethodPost, "/chat/private/send", `{"recipient_agent_id":`+quote(alice.ID)+`,"content":"stolen"}`, "X-API-KEY", bob.Key,
		x402.HeaderPaymentSignature, public).Want(t, "read on the chain two minutes ago", http.StatusPaymentRequired)
	if w.Count(`SELECT count(*) FROM messages WHERE content = 'stolen'`) != 0 {
		t.Error("a stranger has sent a message with somebody else's money")
	}
}

// earlier is a chain on which everything happened two minutes earlier.
type earlier struct{ payment.Chain }

func (e earlier) Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error) {
	state, err := e.Chain.Authorization(ctx, asset, authorizer, nonce, since)
	state.At = state.At.Add(-2 * time.Minute)
	return state, err
}

// TestLongReadsAreReadAgain: the response of a read that is too long to be stored is read again for the same payment.
func TestLongReadsAreReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	var members []*agent
	for i := range 3 {
		members = append(members, w.agent(fmt.Sprintf("member_%d", i)))
	}
	group := alice.createGroup("a group", members...)
	w.Exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'filler_' || i, repeat('x', 1000), false, sha256(('filler' || i)::bytea), now() FROM generate_series(1, 300) i`)
	w.Exec(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, a.id, 'member', 0, 0, now() FROM conversations c, agents a WHERE c.kind = 'group' AND a.username LIKE 'filler%'`)
	payment := w.sign(alice.Wallet, "/chat/group/info")
	info := func() testkit.Reply {
		return w.call(http.MethodPost, "/chat/group/info", `{"chat_id":`+quote(group)+`}`, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature,
			payment)
	}
	revenue := w.Revenue()
	first := info()
	if first.Status != http.StatusOK || len(first.Body) < 64<<10 {
		t.Fatalf("the group's information has %d bytes, want more than is stored: %.300v", len(first.Body), first)
	}
	if n := w.Count(`SELECT count(*) FROM payments WHERE octet_length(response) > 10000`); n != 0 {
		t.Error("the ledger keeps a response of more than 64 KiB")
	}
	if again := info(); again.Status != http.StatusOK || len(again.Body) != len(first.Body) {
		t.Errorf("the same payment again: %d with %d bytes, want the information once more", again.Status, len(again.Body))
	}
	w.Exec(`UPDATE payments SET updated_at = updated_at - interval '1 minute'`)
	if late := info(); late.Status != http.StatusConflict {
		t.Errorf("the same payment a minute after its delivery: %d, want 409", late.Status)
	}
	if w.Revenue() == revenue {
		t.Error("the read was not charged")
	}
}

// TestPaymentsUnderWayCount: while a payment of a wallet is being settled that takes all its money, the facilitator is asked to settle no
// other payment of that wallet, although it paid lately.
func TestPaymentsUnderWayCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	wallet := w.Wallet(10_000)
	send := func() testkit.Reply { return alice.sendWith(w.sign(wallet, sendPath), bob, "text") }
	send().Require(t, "a payment", http.StatusOK)
	var settlements atomic.Int32
	settling, mended := make(chan struct{}), make(chan struct{})
	defer w.atSettlement(func() {
		if settlements.Add(1) == 1 {
			close(settling)
			<-mended
		}
	})()
	first := make(chan testkit.Reply)
	go func() { first <- send() }()
	<-settling
	for range 5 {
		if r := send(); r.Status != http.StatusTooManyRequests || r.Code != "rate_limited" || r.Header.Get("Retry-After") == "" {
			t.Errorf("another payment: %d %s", r.Status, r.Body)
		}
	}
	close(mended)
	if r := <-first; r.Status != http.StatusOK || settlements.Load() != 1 {
		t.Errorf("the payment got %d %s, and the facilitator was asked to settle %d, want 1", r.Status, r.Body, settlements.Load())
	}
}
