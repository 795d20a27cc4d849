package service

import (
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// sendKeyed sends a private message under an Idempotency-Key.
func (a *agent) sendKeyed(payment, key string, to *agent, content string) testkit.Reply {
	a.w.T.Helper()
	return a.w.call(http.MethodPost, sendPath, `{"recipient_agent_id":`+quote(to.ID)+`,"content":`+quote(content)+`}`, "X-API-KEY", a.Key,
		x402.HeaderPaymentSignature, payment, "Idempotency-Key", key)
}

// wantReplay reports a reply that is not the stored response of the first one.
func wantReplay(t *testing.T, what string, got, first testkit.Reply) {
	t.Helper()
	if first.Status != http.StatusOK || string(got.Body) != string(first.Body) || got.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("%s: %v, want the stored response of %v", what, got, first)
	}
}

// TestIdempotencyKey: one key is one call of an account and operation, whatever payment and payment identifier come with it.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	const name = "order~7:secret-name"
	w.Secret(name)
	revenue := w.Revenue()
	sign := func(changes ...func(*x402.PaymentPayload)) string { return w.sign(alice.Wallet, sendPath, changes...) }
	used := sign()
	first := alice.sendKeyed(used, name, bob, "once")
	wantReplay(t, "a new payment", alice.sendKeyed(sign(), name, bob, "once"), first)
	wantReplay(t, "a new payment with an identifier",
		alice.sendKeyed(sign(testkit.Identified("identifier-number-1")), name, bob, "once"), first)
	wantReplay(t, "the same payment without the key", alice.sendWith(used, bob, "once"), first)
	reused := alice.sendKeyed(sign(), name, bob, "something else")
	reused.WantRefused(t, "another request", http.StatusConflict, "payment_reused")
	if !strings.Contains(reused.Message, "Idempotency-Key") {
		t.Errorf("another request: %q, want the key named", reused.Message)
	}
	if w.Revenue() != revenue+5000 {
		t.Errorf("charged %d for one key, want 5000", w.Revenue()-revenue)
	}

	both := sign(testkit.Identified("identifier-number-2"))
	named := alice.sendKeyed(both, "another", bob, "named twice")
	wantReplay(t, "by the identifier alone", alice.sendWith(sign(testkit.Identified("identifier-number-2")), bob, "named twice"), named)
	wantReplay(t, "by the key alone", alice.sendKeyed(sign(), "another", bob, "named twice"), named)
	wantReplay(t, "by the key, with a payment for another call", alice.sendKeyed(both, name, bob, "once"), first)
	bob.sendKeyed(w.sign(bob.Wallet, sendPath), name, alice, "once").Want(t, "another account", http.StatusOK)
	w.call(http.MethodPost, "/agent/block", `{"agent_id":`+quote(bob.ID)+`}`, "X-API-KEY", alice.Key, "Idempotency-Key", name,
		x402.HeaderPaymentSignature, w.sign(alice.Wallet, "/agent/block")).Want(t, "another operation", http.StatusOK)
	if n := w.Count(`SELECT count(*) FROM messages`); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	if w.Count(`SELECT count(*) FROM payments WHERE idempotency_key LIKE '%secret%'`) != 0 {
		t.Error("the ledger keeps the key in the open")
	}
	for _, bad := range []string{"", "with a space", "ключ", strings.Repeat("x", 256)} {
		refused := alice.sendKeyed("", bad, bob, "badly named")
		refused.WantRefused(t, "the key "+quote(bad), http.StatusBadRequest, "invalid_request")
		if len(refused.Details) != 1 || refused.Details[0].Field != "Idempotency-Key" {
			t.Errorf("the key %q: %v, want the header named", bad, refused)
		}
	}
}

// TestIdempotencyKeyWithVouchers: the key finds the call of an earlier voucher. Two calls with different keys are two, even if they come
// with one voucher.
func TestIdempotencyKeyWithVouchers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	first := alice.sendKeyed(payer.sign(sendPath, 10_000, 0), "one", bob, "again and again")
	next := alice.sendKeyed(payer.sign(sendPath, 15_000, 0), "one", bob, "again and again")
	wantReplay(t, "the next voucher", next, first)
	if _, extra := settledOf(t, next); extra.ChargedAmount != "0" || extra.ChannelState.ChargedCumulativeAmount != "10000" {
		t.Errorf("it was charged: %+v", extra)
	}
	if reason, _, _ := correctionOf(t, alice.sendKeyed(payer.sign(sendPath, 10_000, 0), "two", bob,
		"again and again")); reason != x402.ReasonBatchCumulativeMismatch {
		t.Errorf("the same voucher and request with another key: %s", reason)
	}
	alice.sendKeyed(payer.sign(sendPath, 15_000, 0), "two", bob, "again and again").Want(t, "the next voucher with another key", http.StatusOK)
	wantReplay(t, "a voucher of another call", alice.sendKeyed(payer.sign(sendPath, 15_000, 0), "one", bob, "again and again"), first)
	wantReplay(t, "the voucher of an earlier call", alice.sendKeyed(payer.sign(sendPath, 10_000, 0), "one", bob, "again and again"), first)
	alice.sendKeyed(payer.sign(sendPath, 20_000, 0), "one", bob, "another request").WantRefused(t, "a key of another request",
		http.StatusConflict, "payment_reused")
	poll := func(voucher string) testkit.Reply {
		return w.call(http.MethodGet, unreadPath+"?wait=60", "", "X-API-KEY", bob.Key, "Idempotency-Key", "poll", x402.HeaderPaymentSignature,
			voucher)
	}
	price := w.priceOf(http.MethodGet, unreadPath).Accepts[0].Amount
	if price != "1000" {
		t.Fatalf("a poll costs %s", price)
	}
	page := poll(payer.signGet(unreadPath, 16_000))
	wantReplay(t, "a poll that has nothing to wait for", poll(payer.signGet(unreadPath, 17_000)), page)
	w.checkChannels()
}

// TestIdempotencyKeyProvesNothing: a key can be guessed. It returns no secret.
func TestIdempotencyKeyProvesNothing(t *testing.T) {
	t.Parallel()
	const request, body = "/register/request_account", `{"requested_username":"wanted"}`
	w := newWorld(t, withChannels)
	wallet, stranger := w.Wallet(testkit.Dollar), w.Wallet(testkit.Dollar)
	reserve := func(payment string) testkit.Reply {
		return w.call(http.MethodPost, request, body, "Idempotency-Key", "1", x402.HeaderPaymentSignature, payment)
	}
	public := w.sign(wallet, request)
	first := reserve(public)
	w.Secret(first.Field(t, "tan"))
	reserve(public).WantRefused(t, "the settled payment, which is public, with the key", http.StatusConflict, "proof_required")
	wantReplay(t, "a new payment by the wallet", reserve(w.sign(wallet, request)), first)
	reserve(w.sign(stranger, request)).WantRefused(t, "another wallet with the key", http.StatusConflict, "username_reserved")
}
