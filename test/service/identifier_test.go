package service

import (
	"bytes"
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// sendIdentified sends a private message with a new payment under a payment identifier.
func (a *agent) sendIdentified(wallet *ecdsa.PrivateKey, to *agent, content, id string) testkit.Reply {
	a.w.T.Helper()
	const send = "/chat/private/send"
	return a.w.call(http.MethodPost, send, `{"recipient_agent_id":`+quote(to.ID)+`,"content":`+quote(content)+`}`, "X-API-KEY", a.Key,
		x402.HeaderPaymentSignature, a.w.sign(wallet, send, testkit.Identified(id)))
}

// TestPaymentIdentifier: the same name and request is one call, however often it is signed; another request under it is
// refused, and another account's names are its own.
func TestPaymentIdentifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	id := strings.Repeat("secret-name_", 3)
	w.Secret(id)
	revenue := w.Revenue()
	first := alice.sendIdentified(alice.Wallet, bob, "named", id)
	again := alice.sendIdentified(alice.Wallet, bob, "named", id)
	if first.Status != http.StatusOK || !bytes.Equal(first.Body, again.Body) || w.Revenue() != revenue+5000 {
		t.Errorf("signed anew: %v and %v for %d, want one reply for 5000", first, again, w.Revenue()-revenue)
	}
	alice.sendIdentified(alice.Wallet, bob, "something else", id).Want(t, "another request under the same name", 409, "payment_reused")
	bob.sendIdentified(bob.Wallet, alice, "named", id).Want(t, "another account with the same name", 200)
	for _, bad := range []string{"short", strings.Repeat("x", 129), "with a space in it", ""} {
		alice.sendIdentified(alice.Wallet, bob, "badly named", bad).Want(t, fmt.Sprintf("the name %q", bad), 400, "invalid_payment")
	}
	if w.Revenue() != revenue+10_000 || w.Count(`SELECT count(*) FROM messages`) != 2 {
		t.Errorf("%d messages for %d, want 2 for 10000", w.Count(`SELECT count(*) FROM messages`), w.Revenue()-revenue)
	}
	if w.Count(`SELECT count(*) FROM payments WHERE payment_identifier LIKE '%secret%'`) != 0 {
		t.Error("the ledger keeps the name in the open")
	}
}

// TestPaymentIdentifierAfterFailures: while an outcome is unknown the identifier is taken, and the first authorization is the one
// that is settled. A refused payment frees the identifier.
func TestPaymentIdentifierAfterFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue := w.Revenue()
	lost := strings.Repeat("lost-response_", 2)
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	alice.sendIdentified(alice.Wallet, bob, "lost", lost).Want(t, "the reply lost", 503)
	mend()
	a := known(func() testkit.Reply { return alice.sendIdentified(alice.Wallet, bob, "lost", lost) })
	if a.Status != http.StatusOK || w.Revenue() != revenue+5000 {
		t.Errorf("signed anew after that: %v for %d, want 200 for 5000", a, w.Revenue()-revenue)
	}

	poor := w.Wallet(1)
	retry := func() testkit.Reply {
		return alice.sendIdentified(poor, bob, "in the end", strings.Repeat("no-money_", 2))
	}
	retry().Want(t, "without money", 402)
	testkit.NoError(t, w.Ledger.Mint(testkit.Address(poor), testkit.Dollar))
	retry().Want(t, "with money, under the same name", 200)
}

// TestVersionOne: a client of x402 version 1 pays with X-PAYMENT and reads X-PAYMENT-RESPONSE; both versions share one
// ledger, so that one authorization buys one thing.
func TestVersionOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	const send = "/chat/private/send"
	revenue := w.Revenue()
	body := func(content string) string {
		return `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(content) + `}`
	}
	required := w.price(send)
	sign := func() (v1, v2 string) {
		t.Helper()
		payload, err := x402.Sign(t.Context(), x402.NewKeySigner(alice.Wallet), required.Accepts[0], &required.Resource, nil, time.Now())
		testkit.NoError(t, err)
		if v1, err = x402test.EncodePaymentPayloadV1(payload, "base-sepolia"); err != nil {
			t.Fatal(err)
		}
		if v2, err = x402.EncodePaymentPayload(payload); err != nil {
			t.Fatal(err)
		}
		w.Secret(v1, v2, payload.Payload.Signature)
		return v1, v2
	}
	v1, v2 := sign()
	first := w.call(http.MethodPost, send, body("old words"), "X-API-KEY", alice.Key, x402.HeaderPaymentV1, v1)
	settled, err := x402.DecodeSettleResponse(first.Header.Get(x402.HeaderPaymentResponseV1))
	if first.Status != http.StatusOK || err != nil || !settled.Success || settled.Network != "base-sepolia" ||
		first.Header.Get(x402.HeaderPaymentResponse) != "" {
		t.Fatalf("paid in version 1: %v, X-PAYMENT-RESPONSE %+v (%v)", first, settled, err)
	}
	if a := w.call(http.MethodPost, send, body("old words"), "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, v2); !bytes.Equal(a.Body,
		first.Body) {
		t.Errorf("the same authorization in version 2: %v, want the stored reply", a)
	}
	w.call(http.MethodPost, send, body("other words"), "X-API-KEY", alice.Key, x402.HeaderPaymentV1, v1).Want(t,
		"another request in version 1", http.StatusConflict, "payment_reused")
	if w.Revenue() != revenue+5000 {
		t.Errorf("charged %d, want 5000", w.Revenue()-revenue)
	}
	older, _ := sign()
	_, newer := sign()
	if a := w.call(http.MethodPost, send, body("both headers"), "X-API-KEY", alice.Key, x402.HeaderPaymentV1, older,
		x402.HeaderPaymentSignature, newer); a.Status != http.StatusOK || a.Header.Get(x402.HeaderPaymentResponse) == "" {
		t.Errorf("both headers: %v, want it paid in version 2", a)
	}
	if w.Revenue() != revenue+10_000 {
		t.Errorf("charged %d with both headers, want 5000", w.Revenue()-revenue-5000)
	}
	for name, header := range map[string]string{x402.HeaderPaymentV1: newer, x402.HeaderPaymentSignature: older} {
		if a := w.call(http.MethodPost, send, body("mixed up"), "X-API-KEY", alice.Key, name, header); a.Status != http.StatusBadRequest ||
			a.Code != "invalid_payment" || a.Details[0].Field != name {
			t.Errorf("the other version in %s: %v, want 400 that names it", name, a)
		}
	}
	required.Accepts[0].Network, required.Accepts[0].Asset = "eip155:8453", testkit.PlayMoney.Asset
	payload, err := x402.Sign(t.Context(), x402.NewKeySigner(alice.Wallet), required.Accepts[0], nil, nil, time.Now())
	testkit.NoError(t, err)
	elsewhere, err := x402test.EncodePaymentPayloadV1(payload, "base")
	testkit.NoError(t, err)
	w.call(http.MethodPost, send, body("another chain"), "X-API-KEY", alice.Key, x402.HeaderPaymentV1, elsewhere).Want(t,
		"another network's name", 402)
	required = w.price(send)

	// The recovery worker speaks version 1 too.
	mend := w.breakFacilitator(func(rw http.ResponseWriter, _ *http.Request) bool { testkit.HangUp(rw); return true })
	v1, _ = sign()
	w.call(http.MethodPost, send, body("later"), "X-API-KEY", alice.Key, x402.HeaderPaymentV1, v1).Want(t, "the facilitator hangs up", 503)
	mend()
	w.recover()
	if w.Count(`SELECT count(*) FROM messages WHERE content = 'later'`) != 1 {
		t.Error("a payment of version 1 was not recovered")
	}
}
