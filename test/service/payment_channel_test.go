package service

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestPaymentChannel: a deposit, then vouchers, which reach no facilitator.
func TestPaymentChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue, settles := w.Revenue(), w.settles.Load()
	payer := w.channelPayer(alice.Wallet)
	a := alice.sendWith(payer.sign(sendPath, 5000, 20_000), bob, "one")
	settled, extra := settledOf(t, a)
	if a.Status != http.StatusOK || len(settled.Transaction) != 66 || settled.Amount != "20000" {
		t.Fatalf("deposit: %v %+v", a, settled)
	}
	id := payer.signer(sendPath).ID
	want := x402.BatchExtra{ChargedAmount: "5000", ChannelState: &x402.ChannelState{
		ChannelID: id, Balance: "20000", TotalClaimed: "0", RefundNonce: "0", ChargedCumulativeAmount: "5000",
	}}
	if diff := cmp.Diff(want, extra); diff != "" {
		t.Errorf("PAYMENT-RESPONSE of the deposit (-want +got):\n%s", diff)
	}
	for i := range 3 {
		max := uint64(10_000 + 5000*i)
		a := alice.sendWith(payer.sign(sendPath, max, 0), bob, fmt.Sprint("voucher ", i))
		settled, extra := settledOf(t, a)
		if a.Status != http.StatusOK || settled.Transaction != "" || settled.Amount != "0" || extra.ChargedAmount != "5000" ||
			extra.ChannelState.ChargedCumulativeAmount != fmt.Sprint(max) {
			t.Errorf("voucher %d: %v %+v %+v", max, a, settled, extra)
		}
	}
	if w.settles.Load() != settles+1 || w.Revenue() != revenue {
		t.Errorf("%d settlements and %d to the payee, want one deposit and nothing claimed", w.settles.Load()-settles, w.Revenue()-revenue)
	}
	broke := alice.sendWith(payer.sign(sendPath, 25_000, 0), bob, "above the balance")
	if reason, state, _ := correctionOf(t, broke); reason != x402.ReasonBatchExceedsBalance || state.Balance != "20000" {
		t.Errorf("a voucher above the balance: %s %+v", reason, state)
	}
	a = alice.sendWith(payer.sign(sendPath, 25_000, 5000), bob, "topped up")
	if settled, extra := settledOf(t, a); a.Status != http.StatusOK || settled.Amount != "5000" || extra.ChannelState.Balance != "25000" {
		t.Errorf("a top-up: %v %+v %+v", a, settled, extra)
	}
	if n := w.Count(`SELECT count(*) FROM messages`); n != 5 {
		t.Errorf("%d messages, want 5", n)
	}
	w.checkChannels()
}

// TestVoucherAgain: the same voucher with the same request returns the stored response; anything else gets the state of the
// channel, and is never charged.
func TestVoucherAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	deposit := payer.sign(sendPath, 5000, 100_000)
	first := alice.sendWith(deposit, bob, "one")
	voucher := payer.sign(sendPath, 10_000, 0)
	second := alice.sendWith(voucher, bob, "two")
	for name, again := range map[string]struct{ reply, want testkit.Reply }{
		"the deposit, later":  {alice.sendWith(deposit, bob, "one"), first},
		"the newest voucher":  {alice.sendWith(voucher, bob, "two"), second},
		"signed a third time": {alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "two"), second},
	} {
		if again.reply.Status != http.StatusOK || string(again.reply.Body) != string(again.want.Body) {
			t.Errorf("%s: %v, want %v", name, again.reply, again.want)
		}
		old, new := again.want.Header.Get(x402.HeaderPaymentResponse), again.reply.Header.Get(x402.HeaderPaymentResponse)
		if old != new {
			t.Errorf("%s: PAYMENT-RESPONSE %s, want %s", name, new, old)
		}
	}
	for name, a := range map[string]testkit.Reply{
		"another request":          alice.sendWith(voucher, bob, "another"),
		"an older voucher":         alice.sendWith(payer.sign(sendPath, 5000, 0), bob, "one"),
		"a skipped amount":         alice.sendWith(payer.sign(sendPath, 20_000, 0), bob, "three"),
		"less than the price":      alice.sendWith(payer.sign(sendPath, 12_000, 0), bob, "three"),
		"a new deposit from zero":  alice.sendWith(payer.sign(sendPath, 5000, 100_000), bob, "three"),
		"the deposit for another":  alice.sendWith(deposit, bob, "another"),
		"another agent's request ": bob.sendWith(voucher, alice, "two"),
	} {
		reason, state, newest := correctionOf(t, a)
		if reason != x402.ReasonBatchCumulativeMismatch || state.ChargedCumulativeAmount != "10000" || a.Charged {
			t.Errorf("%s: %s %+v", name, reason, state)
		}
		if newest == nil || newest.SignedMaxClaimable != "10000" || !payer.signer(sendPath).Signed(10_000, newest.Signature) {
			t.Errorf("%s: the newest voucher is %+v, want the one for 10000 as the payer signed it", name, newest)
		}
	}
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != 2 {
		t.Errorf("%d messages, want 2", messages)
	}
	w.checkChannels()
}

// TestRegistrationFromAChannel: both calls of a registration with vouchers. A wrong TAN costs nothing, and the voucher stays good.
func TestRegistrationFromAChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	payer := w.channelPayer(w.Wallet(10 * testkit.Dollar))
	const request, create = "/register/request_account", "/register/create_account"
	tan := w.call(http.MethodPost, request, `{"requested_username":"carol"}`, x402.HeaderPaymentSignature, payer.sign(request, 10_000,
		5*testkit.Dollar)).Field(t, "tan")
	w.Secret(tan)
	price := testkit.Price("POST " + create)
	voucher := payer.sign(create, 10_000+price, 0)
	body := func(tan string) string { return `{"username":"carol","tan":` + quote(tan) + `,"description":""}` }
	if a := w.call(http.MethodPost, create, body("00000000"), x402.HeaderPaymentSignature, voucher); a.Status != http.StatusForbidden ||
		a.Charged {
		t.Errorf("a wrong TAN: %v, want 403", a)
	}
	a := w.call(http.MethodPost, create, body(tan), x402.HeaderPaymentSignature, voucher)
	key := a.Field(t, "api_key")
	w.Secret(key)
	if again := w.call(http.MethodPost, create, body(tan), x402.HeaderPaymentSignature, voucher); again.Status != http.StatusPaymentRequired ||
		bytes.Contains(again.Body, []byte(key)) {
		t.Errorf("the same voucher: %v, want a 402 without the API key", again)
	}
	me := w.call(http.MethodGet, "/agent/me", "", "X-API-KEY", key, x402.HeaderPaymentSignature, payer.signGet("/agent/me", 11_000+price))
	if me.Text("username") != "carol" {
		t.Errorf("the new agent: %v", me)
	}
	w.checkChannels()
}

const unreadPath = "/agent/unread"
