package service

import (
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// forgetful is a client of payment channels alone that cannot read the chain, as an official one: it follows no corrective 402. It knows
// what its payment channels were charged and have, by id, and loses that after a refund of everything.
type forgetful struct {
	*agent
	key             *ecdsa.PrivateKey
	charged, having map[string]uint64
}

func (w *world) forgetful(of *agent) *forgetful {
	return &forgetful{of, of.Wallet, map[string]uint64{}, map[string]uint64{}}
}

func (f *forgetful) lose() { f.charged, f.having = map[string]uint64{}, map[string]uint64{} }

// signer is for the payment channel that GET /agent/me offers with these headers.
func (f *forgetful) signer(headers ...string) *x402.ChannelSigner {
	f.w.T.Helper()
	return f.signerOf(http.MethodGet, "/agent/me", headers...)
}

// signerOf is for the payment channel that an operation offers.
func (f *forgetful) signerOf(method, path string, headers ...string) *x402.ChannelSigner {
	f.w.T.Helper()
	a := f.w.call(method, path, "", headers...)
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	testkit.NoError(f.w.T, err)
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(f.key), zeroSalt, offerOf(f.w.T, required))
	testkit.NoError(f.w.T, err)
	return signer
}

func (f *forgetful) me() testkit.Reply { f.w.T.Helper(); return f.pay(http.MethodGet, "/agent/me", "") }

// pay makes a call.
func (f *forgetful) pay(method, path, body string) testkit.Reply {
	f.w.T.Helper()
	signer := f.signerOf(method, path, "X-API-KEY", f.Key)
	price, err := strconv.ParseUint(f.w.priceOf(method, path).Accepts[0].Amount, 10, 64)
	testkit.NoError(f.w.T, err)
	max, deposit := f.charged[signer.ID]+price, uint64(0)
	if max > f.having[signer.ID] {
		deposit = suggestedDeposit
	}
	signed, err := signer.Sign(f.w.T.Context(), max, deposit, time.Now())
	testkit.NoError(f.w.T, err)
	a := f.w.call(method, path, body, "X-API-KEY", f.Key, x402.HeaderPaymentSignature, f.w.channelPayer(f.key).encode(signed))
	if a.Status == http.StatusOK {
		f.charged[signer.ID] = max
		f.having[signer.ID] += deposit
	}
	return a
}

// refund asks for everything without a key, which official clients do not send.
func (f *forgetful) refund() testkit.Reply {
	f.w.T.Helper()
	signer := f.signer()
	if _, ok := f.having[signer.ID]; !ok {
		f.w.T.Fatal("a payment channel is offered that the client does not know")
	}
	signed, err := signer.SignRefund(f.w.T.Context(), f.charged[signer.ID], 0)
	testkit.NoError(f.w.T, err)
	f.lose()
	return f.w.call(http.MethodGet, "/agent/me", "", x402.HeaderPaymentSignature, f.w.channelPayer(f.key).encode(signed))
}

// TestForgetfulClient: a client without RPC is never refused for good. After a refund of everything its next call succeeds at once, after
// a lost state the second one, however often, and after a restart of the server as well. What is left in a payment channel whose state
// was lost comes back after a deposit into the next one.
func TestForgetfulClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice := w.forgetful(w.agent("alice"))
	lost := func(what string) {
		t.Helper()
		alice.lose()
		a := alice.me()
		if reason, _, _ := correctionOf(t, a); reason == "" || !strings.Contains(a.Message, "your client lost this channel's state") {
			t.Fatalf("%s: %v", what, a)
		}
		alice.me().Require(t, what+", the second call", http.StatusOK)
	}
	alice.me().Require(t, "the first call", http.StatusOK)
	for n := range 5 { // ten refunds of what was hardly used are made in an hour
		alice.refund().Require(t, fmt.Sprint("refund ", n), http.StatusNoContent)
		alice.me().Require(t, fmt.Sprint("after refund ", n), http.StatusOK)
		alice.me().Require(t, fmt.Sprint("another call after refund ", n), http.StatusOK)
	}
	for n := range 3 {
		w.Exec(`UPDATE payment_channels SET refunded_at = now()`) // refunds that the payer asks for have a pause
		lost(fmt.Sprint("state lost ", n))
		alice.refund().Require(t, fmt.Sprint("refund after state lost ", n), http.StatusNoContent)
		alice.lose()
		alice.me().Require(t, fmt.Sprint("after both ", n), http.StatusOK)
		alice.me().Require(t, fmt.Sprint("another call after both ", n), http.StatusOK)
	}
	channel := alice.signer("X-API-KEY", alice.Key).ID
	alice.charged[channel]--
	alice.me().Require(t, "a call with a voucher that was overtaken", http.StatusPaymentRequired)
	alice.charged[channel]++
	alice.refund().Require(t, "a refund after that", http.StatusNoContent)
	if first := alice.firstOffer(); first != x402.SchemeBatch {
		t.Errorf("after a refund of everything, %s is offered first", first)
	}
	alice.me().Require(t, "the call after it", http.StatusOK)
	delay := alice.signer("X-API-KEY", alice.Key).Config.WithdrawDelay
	for scheme, rotated := range map[string]func() testkit.Reply{
		x402.SchemeBatch: func() testkit.Reply { return alice.pay(http.MethodPost, rotate, "{}") },
		x402.SchemeExact: func() testkit.Reply { return alice.ask(rotate, fields{}) },
	} {
		alice.Key = rotated().Field(t, "api_key")
		w.Secret(alice.Key)
		if now := alice.signer("X-API-KEY", alice.Key).Config.WithdrawDelay; now != delay || delay == 24*3600 {
			t.Errorf("with an API key that %s paid for the agent is offered a payment channel with a delay of %d s, before %d s", scheme, now, delay)
		}
	}
	bob := w.agent("bob")
	for who, signer := range map[string]*x402.ChannelSigner{
		"another agent": w.forgetful(bob).signer("X-API-KEY", bob.Key),
		"a newcomer":    w.channelPayer(bob.Wallet).signer("/register/request_account"),
	} {
		if delay := signer.Config.WithdrawDelay; delay != 24*3600 {
			t.Errorf("%s at the same address is offered a payment channel with a delay of %d s", who, delay)
		}
	}
	if !w.recoverUntil(func() bool { return w.Count(`SELECT count(*) FROM payment_channels WHERE balance > charged`) == 1 }) {
		t.Error("what is left in the payment channels whose state was lost is not refunded")
	}
	w.Exec(`UPDATE payment_channels SET balance = charged WHERE withdraw_delay = (SELECT max(withdraw_delay) FROM payment_channels)`)
	alice.me().Require(t, "a voucher on money that was refunded", http.StatusPaymentRequired)
	alice.me().Require(t, "the call after it", http.StatusOK)
	second := w.beside()
	alice.w = second
	alice.me().Require(t, "the first call after a restart of the server", http.StatusPaymentRequired)
	if first := alice.firstOffer(); first != x402.SchemeBatch {
		t.Errorf("a client that has the state of its newest payment channel is offered %s first after a restart of the server", first)
	}
	alice.me().Require(t, "the second call after a restart of the server", http.StatusOK)
	w.checkChannels()
}

// TestClientStaysBehind: a client that lost the response to a call, cannot repeat it and knows no other scheme pays from a new payment
// channel after a minute. What is left in the old one is refunded.
func TestClientStaysBehind(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t, withChannels)
	alice := w.forgetful(w.agent("alice"))
	alice.me().Require(t, "the first call", http.StatusOK)
	alice.me().Require(t, "the call whose response is lost", http.StatusOK)
	old := alice.signer("X-API-KEY", alice.Key).ID
	alice.charged[old]--
	alice.me().Require(t, "the next call", http.StatusPaymentRequired)
	alice.me().Require(t, "a call soon after", http.StatusPaymentRequired)
	if now := alice.signer("X-API-KEY", alice.Key).ID; now != old {
		t.Error("a client that may only have been overtaken is offered a new payment channel")
	}
	time.Sleep(61 * time.Second)
	alice.me().Require(t, "a call after a minute", http.StatusPaymentRequired)
	alice.me().Require(t, "the call after that", http.StatusOK)
	if !w.recoverUntil(func() bool { return w.Count(`SELECT count(*) FROM payment_channels WHERE balance > charged`) == 1 }) {
		t.Error("what is left in the payment channel that the client cannot use is not refunded")
	}
	w.checkChannels()
}

// TestUnknownPaymentChannel: a client that counts on a payment channel that does not exist, because it took a deposit for settled, gets
// another one. It is told so with a response that its deposit did not pay.
func TestUnknownPaymentChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice := w.forgetful(w.agent("alice"))
	alice.having[alice.signer("X-API-KEY", alice.Key).ID] = suggestedDeposit
	alice.me().Require(t, "a voucher of a payment channel that does not exist", http.StatusPaymentRequired)
	alice.me().Require(t, "the next call", http.StatusOK)

	const path, request = "/register/request_account", `{"requested_username":"carol"}`
	wallet := w.Wallet(testkit.Dollar)
	paid := w.sign(wallet, path, testkit.Identified("carol-asks-for-a-tan"))
	first := w.call(http.MethodPost, path, request, x402.HeaderPaymentSignature, paid)
	w.Secret(first.Field(t, "tan"))
	payer := w.channelPayer(wallet)
	again := w.call(http.MethodPost, path, request, x402.HeaderPaymentSignature,
		payer.sign(path, 10_000, 100_000, func(p *x402.BatchPayment) { p.Extensions = testkit.Identifier("carol-asks-for-a-tan") }))
	if string(again.Body) != string(first.Body) {
		t.Fatalf("the same identifier with a deposit: %v", again)
	}
	if _, extra := settledOf(t, again); extra.ChannelState == nil || extra.ChannelState.Balance != "0" || extra.ChargedAmount != "0" {
		t.Errorf("a deposit that is not settled is told as %+v", extra)
	}
}

// TestRefundOfANewcomer: a refund without a key finds the payment channel of the last call from the address, also if that call was of a
// newcomer.
func TestRefundOfANewcomer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice := w.forgetful(w.agent("alice"))
	alice.me().Require(t, "a call of alice", http.StatusOK)
	alice.refund().Require(t, "a refund, after which she has another payment channel", http.StatusNoContent)
	alice.me().Require(t, "a call from that", http.StatusOK)
	newcomer := w.newcomer(testkit.Dollar)
	newcomer.pay(http.MethodPost, "/register/request_account", `{"requested_username":"carol"}`).Require(t, "a request", http.StatusOK)
	newcomer.refund().Require(t, "a refund after it", http.StatusNoContent)
}

// newcomer is a client that has a wallet and no account.
func (w *world) newcomer(funds uint64) *forgetful {
	newcomer := w.forgetful(&agent{Agent: &testkit.Agent{}, w: w})
	newcomer.key = w.Wallet(funds)
	return newcomer
}

// TestDepositAboveTheBalance: a wallet that has the price and not the deposit is offered exact first.
func TestDepositAboveTheBalance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	newcomer := w.newcomer(suggestedDeposit - 1)
	const path = "/register/request_account"
	a := newcomer.pay(http.MethodPost, path, `{"requested_username":"carol"}`)
	a.Want(t, "a deposit above the balance", http.StatusPaymentRequired, "payment_refused")
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	if err != nil || required.Error != x402.ReasonBatchInsufficientBalance || required.Accepts[0].Scheme != x402.SchemeExact {
		t.Errorf("it is refused with %+v (%v), want exact first", required, err)
	}
	if first := w.price(path).Accepts[0].Scheme; first != x402.SchemeExact {
		t.Errorf("after it %s is offered first", first)
	}
}

// TestSuggestedDeposit: the deposit that is suggested to newcomers pays for the account too.
func TestSuggestedDeposit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	registration := uint64(0)
	for _, path := range []string{"/register/request_account", "/register/create_account"} {
		price, err := strconv.ParseUint(w.price(path).Accepts[0].Amount, 10, 64)
		testkit.NoError(t, err)
		registration += price
	}
	for path, want := range map[string]uint64{
		"/register/request_account": suggestedDeposit + registration, "/register/create_account": suggestedDeposit + registration,
		sendPath: suggestedDeposit,
	} {
		if terms, err := x402.TermsOf(offerOf(t, w.price(path))); err != nil || terms.MinDeposit != want {
			t.Errorf("%s suggests a deposit of %d, want %d (%v)", path, terms.MinDeposit, want, err)
		}
	}
}

// TestWhoSeesTheNewestVoucher: the newest voucher is shown with a deposit that was signed for this call, and with the API key of an account
// that used the payment channel. What stands on the chain opens nothing: neither a claimed voucher nor a deposit that was used, together or
// alone.
func TestWhoSeesTheNewestVoucher(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, mallory := w.agent("alice"), w.agent("bob"), w.agent("mallory")
	payer := alice.claimed(bob)
	newestTo := func(who *agent, header string) string {
		t.Helper()
		_, _, newest := correctionOf(t, who.sendWith(header, bob, "correct me"))
		if newest == nil {
			return ""
		}
		return newest.SignedMaxClaimable
	}
	claimed := payer.sign(sendPath, 5000, 0)
	if newest := newestTo(alice, claimed); newest != "5000" {
		t.Errorf("the account that used it sees %q, want the voucher for 5000", newest)
	}
	var used x402.ERC3009Deposit
	second := payer.sign(sendPath, 10_000, 50_000, func(p *x402.BatchPayment) { used = p.Payload.Deposit.Authorization.ERC3009 })
	alice.sendWith(second, bob, "two").Require(t, "a top-up", http.StatusOK)
	alice.sendWith(payer.sign(sendPath, 15_000, 0), bob, "three").Require(t, "the next voucher", http.StatusOK)
	replayed := payer.sign(sendPath, 5000, 50_000, func(p *x402.BatchPayment) { p.Payload.Deposit.Authorization.ERC3009 = used })
	foreign := payer.sign(sendPath, 5000, 50_000, func(p *x402.BatchPayment) {
		own, err := w.channelPayer(mallory.Wallet).signer(sendPath).Sign(t.Context(), 5000, 50_000, time.Now())
		testkit.NoError(t, err)
		p.Payload.Deposit = own.Payload.Deposit
	})
	for what, header := range map[string]string{"the claimed voucher": claimed, "with the deposit of the chain": replayed} {
		if newest := newestTo(mallory, header); newest != "" {
			t.Errorf("a stranger, %s: sees the voucher for %s", what, newest)
		}
	}
	if reason := reasonOf(t, mallory.sendWith(foreign, bob, "a deposit of another wallet")); reason != x402.ReasonBatchDepositSignature {
		t.Errorf("with the deposit of another wallet: %s", reason)
	}
	if newest := newestTo(alice, payer.sign(sendPath, 5000, 50_000)); newest != "15000" {
		t.Errorf("with a deposit signed now: sees %q, want the voucher for 15000", newest)
	}
	mend := w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/rpc" {
			testkit.HangUp(rw)
		}
		return r.URL.Path == "/rpc"
	})
	if newest := newestTo(mallory, replayed); newest != "" {
		t.Errorf("without the chain a stranger sees the voucher for %s", newest)
	}
	mend()
	w.checkChannels()
}
