package server_test

import (
	"crypto/ecdsa"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// naming funds a payment channel whose payer is somebody else's wallet, as a deposit collector of one's own can, and returns a function
// that
// signs its vouchers.
func (w *world) naming(key *ecdsa.PrivateKey, payer string, amount uint64) func(path string, cumulative uint64) string {
	w.T.Helper()
	offer := offerOf(w.T, w.price(sendPath))
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(key), zeroSalt, offer)
	if err != nil {
		w.T.Fatal(err)
	}
	signer.Config.Payer = payer
	if signer.ID, err = x402.ChannelIDOf(signer.Config, offer.Network); err != nil {
		w.T.Fatal(err)
	}
	if err := w.Ledger.Mint(payer, amount); err != nil {
		w.T.Fatal(err)
	}
	if err := w.Ledger.DepositIntoChannel(signer.Config, amount); err != nil {
		w.T.Fatal(err)
	}
	return func(path string, cumulative uint64) string {
		w.T.Helper()
		signed, err := signer.Sign(w.T.Context(), cumulative, 0, time.Now())
		if err != nil {
			w.T.Fatal(err)
		}
		signed.Accepted = offerOf(w.T, w.price(path))
		return (&channelPayer{w: w}).encode(signed)
	}
}

// TestNamedPayer: a payment channel can name any wallet as its payer. Its vouchers neither replace the TAN of that wallet nor use up its
// tries.
func TestNamedPayer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, withLimits(server.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	const request, create, body = "/register/request_account", "/register/create_account", `{"requested_username":"goodname"}`
	victim, attacker := w.Wallet(10*testkit.Dollar), w.Wallet(10*testkit.Dollar)
	at := func(address string) []string { return []string{"X-Forwarded-For", address} }
	tan := w.pay(victim, request, body, at("192.0.2.7")...).Field(t, "tan")
	w.Secret(tan)
	sign := w.naming(attacker, testkit.Address(victim), testkit.Dollar)
	w.call(http.MethodPost, request, body, append(at("192.0.2.66"), x402.HeaderPaymentSignature, sign(request, 10_000))...).
		WantRefused(t, "a voucher that names the wallet", http.StatusConflict, "username_reserved")
	for range 5 {
		w.call(http.MethodPost, create, account("goodname", "00000000"), append(at("192.0.2.66"), x402.HeaderPaymentSignature,
			sign(create, 990_000))...).
			WantRefused(t, "a wrong TAN", http.StatusForbidden, "invalid_tan")
	}
	created := w.pay(victim, create, account("goodname", tan), at("192.0.2.7")...)
	created.Require(t, "the wallet's own TAN", http.StatusOK)
	w.Secret(created.Text("api_key"))
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
	w := newWorld(t, withChannels, withLimits(server.Limits{Address: few(30),
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

// TestNamedPayerGetsNoSecretOfOthers: the registration that a stranger paid with a channel that names a wallet is not that wallet's. Its
// own
// payments get a TAN and a key of their own, which the stranger does not know.
func TestNamedPayerGetsNoSecretOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	const request, create, body = "/register/request_account", "/register/create_account", `{"requested_username":"wanted"}`
	victim, stranger := w.Wallet(10*testkit.Dollar), w.Wallet(10*testkit.Dollar)
	sign := w.naming(stranger, testkit.Address(victim), 2*testkit.Dollar)
	reserved := w.call(http.MethodPost, request, body, x402.HeaderPaymentSignature, sign(request, 10_000))
	tan := reserved.Field(t, "tan")
	w.Secret(tan)
	w.pay(victim, request, body).Want(t, "the wallet asks for the same name", http.StatusConflict)
	created := w.call(http.MethodPost, create, account("wanted", tan), x402.HeaderPaymentSignature, sign(create, 1_000_000))
	w.Secret(created.Field(t, "api_key"))
	w.pay(victim, create, account("wanted", tan)).Want(t, "the wallet creates the account that exists", http.StatusForbidden)
}

// TestNamedWalletKeepsItsTokens: made-up vouchers name a wallet that paid lately. They take no tokens of it, but those of their address.
func TestNamedWalletKeepsItsTokens(t *testing.T) {
	t.Parallel()
	const request, stranger, tries = "/register/request_account", "192.0.2.66", 10
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	w := newWorld(t, withChannels, withLimits(server.Limits{Address: few(15), Wallet: few(tries), TrustedProxies: proxies}))
	alice, bob := w.agent("alice"), w.agent("bob")
	offer := offerOf(t, w.price(request))
	for range 2 * tries {
		signer, err := x402.NewChannelSigner(x402.NewKeySigner(testkit.NewKey()), zeroSalt, offer)
		if err != nil {
			t.Fatal(err)
		}
		signer.Config.Payer = testkit.Address(alice.Wallet)
		if signer.ID, err = x402.ChannelIDOf(signer.Config, offer.Network); err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(t.Context(), 10_000, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
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
