package service

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// claimed makes a paid call by the agent from a new payment channel, and claims its voucher, which is public then.
func (a *agent) claimed(to *agent) *channelPayer {
	a.w.T.Helper()
	a.opened(to, 1)
	a.w.due()
	if !a.w.recoverUntil(func() bool {
		return a.w.Count(`SELECT claimed FROM payment_channels WHERE payer = lower($1)`, testkit.Address(a.Wallet)) == 5000
	}) {
		a.w.T.Fatal("nothing is claimed")
	}
	return a.w.channelPayer(a.Wallet)
}

// TestClaimedVoucherShowsTheChain: a claimed voucher is public. What a stranger learns with it does not change with the calls that its
// payer makes after the claim, also when it asks for a refund. The API key of an account that used the payment channel shows the present
// state, and so does a voucher that was never claimed.
func TestClaimedVoucherShowsTheChain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, mallory := w.agent("alice"), w.agent("bob"), w.agent("mallory")
	payer := alice.claimed(bob)
	const path, body = "/register/request_account", `{"requested_username":"strange"}`
	public, unknown := payer.sign(path, 5000, 0), payer.sign(path, 7000, 0)
	claimed := payer.sign(sendPath, 5000, 0)
	looks := map[string]func() testkit.Reply{
		"without an account": func() testkit.Reply {
			return w.call(http.MethodPost, path, body, x402.HeaderPaymentSignature, public)
		},
		"with another account": func() testkit.Reply { return mallory.sendWith(claimed, bob, "correct me") },
		"a refund of a part":   func() testkit.Reply { return payer.refund("/agent/me", 5000, 15_000) },
		"a refund of a part, with another account": func() testkit.Reply {
			return payer.refund("/agent/me", 5000, 15_000, "X-API-KEY", mallory.Key)
		},
	}
	seen := map[string]string{}
	look := func(when string) {
		for how, look := range looks {
			a := look()
			shown := fmt.Sprint(a.Status, a.Code, a.Message, a.Header.Get(x402.HeaderPaymentRequired))
			if seen[how] = cmp.Or(seen[how], shown); shown != seen[how] {
				t.Errorf("%s, %s: a stranger sees %s, before %s", when, how, shown, seen[how])
			}
		}
	}
	look("after the claim")
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "one").Require(t, "the payer goes on", http.StatusOK)
	look("after a call")
	alice.sendWith(payer.sign(sendPath, 15_000, 0), bob, "two").Require(t, "the payer goes on", http.StatusOK)
	look("after another one")
	_, state, newest := correctionOf(t, payer.refund("/agent/me", 5000, 0))
	if state.ChargedCumulativeAmount != "5000" || state.TotalClaimed != "5000" || state.Balance != "100000" || newest != nil {
		t.Errorf("a stranger that asks for everything sees %+v %+v, want what was claimed", state, newest)
	}
	for how, a := range map[string]testkit.Reply{
		"the account that used it":                           alice.sendWith(claimed, bob, "correct me"),
		"the account that used it, for a refund":             payer.refund("/agent/me", 5000, 0, "X-API-KEY", alice.Key),
		"a voucher that was never claimed, of a lost client": w.call(http.MethodPost, path, body, x402.HeaderPaymentSignature, unknown),
	} {
		if _, state, newest := correctionOf(t, a); state.ChargedCumulativeAmount != "15000" || newest == nil ||
			newest.SignedMaxClaimable != "15000" {
			t.Errorf("%s: %+v %+v, want the present state", how, state, newest)
		}
	}
	w.checkChannels()
}

// TestDustIsRefused: each deposit costs the operator a transaction, so one below the least is refused before the facilitator is asked.
func TestDustIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	before := w.settles.Load()
	if reason := reasonOf(t, alice.sendWith(payer.sign(sendPath, 5000, leastDeposit-1), bob,
		"a first deposit")); reason != x402.ReasonBatchDepositBelowMin {
		t.Errorf("a first deposit below the least is refused because of %q", reason)
	}
	alice.opened(bob, 1)
	for n := range 3 {
		if reason := reasonOf(t, alice.sendWith(payer.sign(sendPath, 10_000, 1), bob, "a top-up")); reason != x402.ReasonBatchDepositBelowMin {
			t.Errorf("top-up %d of one atomic unit is refused because of %q", n+1, reason)
		}
	}
	if n := w.settles.Load() - before; n != 1 {
		t.Errorf("/settle was called %d times, want once, for the deposit that is large enough", n)
	}
}

// reasonOf returns the reason of a 402 that charged nothing.
func reasonOf(t *testing.T, a testkit.Reply) string {
	t.Helper()
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	if a.Status != http.StatusPaymentRequired || err != nil || a.Charged {
		t.Fatalf("%v, want a 402 without a charge (%v)", a, err)
	}
	return required.Error
}

// TestClaimUnderWayMakesPublic: while the response to a claim is missing, its vouchers may stand on the chain. They show no newer voucher
// and refund no part.
func TestClaimUnderWayMakesPublic(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	signer := alice.opened(bob, 1)
	payer := w.channelPayer(alice.Wallet)
	public := payer.sign("/register/request_account", 5000, 0)
	w.due()
	mend := w.breakFacilitator(w.settleAndThen(testkit.HangUp))
	if !w.recoverUntil(func() bool { return w.Ledger.Channel(signer.ID).TotalClaimed == 5000 }) {
		t.Fatal("not claimed")
	}
	mend()
	if claimed := w.Count(`SELECT claimed FROM payment_channels`); claimed != 0 {
		t.Fatalf("%d is recorded as claimed, want nothing yet", claimed)
	}
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "two").Require(t, "the payer goes on", http.StatusOK)
	a := w.call(http.MethodPost, "/register/request_account", `{"requested_username":"strange"}`, x402.HeaderPaymentSignature, public)
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	testkit.NoError(t, err)
	if _, newest, _ := x402.Correction(offerOf(t, required)); newest != nil {
		t.Errorf("a stranger with the claimed voucher is shown the newest one, for %s", newest.SignedMaxClaimable)
	}
	payer.refund("/agent/me", 10_000, 10_000).Want(t, "a part with a voucher that may stand on the chain", http.StatusConflict)
}

// TestPaymentsOfNoScheme: a payment whose scheme or terms no server can have offered is refused, and is no error of the server.
func TestPaymentsOfNoScheme(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	const path, body = "/register/request_account", `{"requested_username":"x"}`
	payer, required := w.channelPayer(w.Wallet(0)), w.price(path)
	terms := func(name string, value any, change func(*x402.BatchPayment)) string {
		return payer.sign(path, 10_000, 0, func(p *x402.BatchPayment) {
			change(p)
			p.Accepted.Extra[name] = value
		})
	}
	exact := testkit.Payment(t, w.Wallet(0), required)
	v1 := fmt.Appendf(nil, `{"x402Version":1,"scheme":"batch-settlement","network":"base-sepolia","payload":{"signature":%q,"authorization":{`+
		`"from":%q,"to":%q,"value":"10000","validAfter":"0","validBefore":"9999999999","nonce":%q}}}`, "0x"+strings.Repeat("ab", 65),
		exact.Payload.Authorization.From, required.Accepts[0].PayTo, exact.Payload.Authorization.Nonce)
	exact.Accepted = offerOf(t, required)
	raw, err := base64.StdEncoding.DecodeString(testkit.Header(t, exact))
	testkit.NoError(t, err)
	escaped := bytes.ReplaceAll(raw, []byte("batch-settlement"), []byte(`batch\u002dsettlement`))
	zero := "0x" + strings.Repeat("0", 40)
	for name, header := range map[string][2]string{
		"a withdraw delay of a second": {x402.HeaderPaymentSignature,
			terms("withdrawDelay", 1, func(p *x402.BatchPayment) { p.Payload.ChannelConfig.WithdrawDelay = 1 })},
		"no authorizer": {x402.HeaderPaymentSignature,
			terms("receiverAuthorizer", zero, func(p *x402.BatchPayment) { p.Payload.ChannelConfig.ReceiverAuthorizer = zero })},
		"exact with the other scheme's name":     {x402.HeaderPaymentSignature, base64.StdEncoding.EncodeToString(escaped)},
		"version 1 with the other scheme's name": {x402.HeaderPaymentV1, base64.StdEncoding.EncodeToString(v1)},
	} {
		w.call(http.MethodPost, path, body, header[0], header[1]).Want(t, name, http.StatusPaymentRequired, "payment_refused")
	}
}

// TestRefundInAnOutage: a refund that does not reach the facilitator leaves the payment channel open.
func TestRefundInAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := alice.claimed(bob)
	defer w.breakFacilitator(func(rw http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" { // the blockchain endpoint responds
			rw.WriteHeader(http.StatusTooManyRequests)
		}
		return r.URL.Path == "/settle"
	})()
	payer.refund("/agent/me", 5000, 0).Want(t, "a refund that the facilitator does not take", http.StatusServiceUnavailable, "unavailable")
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "hello").Want(t, "the next voucher", http.StatusOK)
	w.checkChannels()
}

// TestVouchersOfOthersTakeTokens: claimed vouchers of others are public. Who sends them uses up the tokens of its address.
func TestVouchersOfOthersTakeTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, withLimits(edge.Limits{Address: few(30),
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	const request, stranger = "/register/request_account", "192.0.2.66"
	alice, bob := w.agent("alice"), w.agent("bob")
	public := alice.claimed(bob).sign(request, 5000, 0)
	ask := func() testkit.Reply {
		return w.call(http.MethodPost, request, `{"requested_username":"strange"}`, "X-Forwarded-For", stranger, x402.HeaderPaymentSignature,
			public)
	}
	for range 30 {
		correctionOf(t, ask())
	}
	w.wantLimited("a claimed voucher of somebody else, too often", w.call(http.MethodGet, "/skill", "", "X-Forwarded-For", stranger),
		"address")
}

// TestNamedWalletKeepsItsTokens: made-up vouchers name a wallet that paid lately. They take no tokens of it, but those of their address.
func TestNamedWalletKeepsItsTokens(t *testing.T) {
	t.Parallel()
	const request, stranger, tries = "/register/request_account", "192.0.2.66", 10
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w := newWorld(t, withChannels, withLimits(edge.Limits{Address: few(15), Wallet: few(tries), TrustedProxies: proxies}))
	alice, bob := w.agent("alice"), w.agent("bob")
	offer := offerOf(t, w.price(request))
	for range 2 * tries {
		signer, err := x402.NewChannelSigner(x402.NewKeySigner(testkit.NewKey()), zeroSalt, offer)
		testkit.NoError(t, err)
		signer.Config.Payer = testkit.Address(alice.Wallet)
		if signer.ID, err = x402.ChannelIDOf(signer.Config, offer.Network); err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(t.Context(), 10_000, 0, time.Now())
		testkit.NoError(t, err)
		a := w.call(http.MethodPost, request, `{"requested_username":"strange"}`, "X-Forwarded-For", stranger,
			x402.HeaderPaymentSignature, (&channelPayer{w: w}).encode(signed))
		if a.Status == http.StatusOK {
			t.Fatalf("a voucher that nobody signed: %v", a)
		}
	}
	w.wantLimited("made-up vouchers, too often", w.call(http.MethodGet, "/skill", "", "X-Forwarded-For", stranger), "address")
	alice.sends(bob, "hello").
		Want(t, "a paid call of the wallet that was named", http.StatusOK)
}
