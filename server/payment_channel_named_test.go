package server_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

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
