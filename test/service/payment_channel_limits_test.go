package service

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// schemes are the schemes of the entries of accepts, in their order.
func schemes(required *x402.PaymentRequired) string {
	var names []string
	for _, offer := range required.Accepts {
		names = append(names, offer.Scheme)
	}
	return strings.Join(names, " ")
}

// bounded changes the bounds of what may be unclaimed.
func bounded(each, total uint64) setting {
	return func(config *server.Config, _ *payment.Chain, _ string) {
		config.Channels.MaxUnclaimed, config.Channels.MaxUnclaimedTotal = each, total
	}
}

// refusedFor wants a 402 without a charge that offers exact first, and returns its reason.
func refusedFor(t *testing.T, a testkit.Reply) string {
	t.Helper()
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	if a.Status != http.StatusPaymentRequired || err != nil || a.Charged {
		t.Fatalf("%v, want a 402 without a charge (%v)", a, err)
	}
	if !strings.HasPrefix(schemes(required), x402.SchemeExact) {
		t.Errorf("the 402 offers %s, want exact first", schemes(required))
	}
	return required.Error
}

// TestUnclaimedBounds: at the bound of a payment channel, or of all, a voucher is refused, and the payer can go on with exact. The
// same voucher is charged after a claim.
func TestUnclaimedBounds(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string]setting{"of a payment channel": bounded(10_000, 0), "of all": bounded(0, 10_000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, withChannels, bounds)
			alice, bob := w.agent("alice"), w.agent("bob")
			alice.opened(bob, 2)
			payer := w.channelPayer(alice.Wallet)
			third := payer.sign(sendPath, 15_000, 0)
			if reason := refusedFor(t, alice.sendWith(third, bob, "too much")); reason != x402.ReasonBatchChannelBusy {
				t.Errorf("refused because of %s, want %s", reason, x402.ReasonBatchChannelBusy)
			}
			refusedFor(t, alice.sendWith(payer.sign(sendPath, 15_000, 50_000), bob, "a deposit does not help"))
			alice.sends(bob, "exact").Want(t, "scheme exact", http.StatusOK)
			w.due()
			if !w.recoverUntil(func() bool { return w.Count(`SELECT claimed FROM payment_channels`) == 10_000 }) {
				t.Fatal("nothing is claimed")
			}
			w.recoverUntil(func() bool { return schemes(w.price(sendPath)) == "batch-settlement exact" })
			alice.sendWith(third, bob, "after the claim").Want(t, "the same voucher after the claim", http.StatusOK)
			w.checkChannels()
		})
	}
}

// TestClaimBeforeTheBound: from half of the bound of all payment channels on, everything is claimed at once.
func TestClaimBeforeTheBound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, bounded(0, 20_000))
	alice, bob := w.agent("alice"), w.agent("bob")
	signer := alice.opened(bob, 2)
	if !w.recoverUntil(func() bool { return w.Ledger.Channel(signer.ID).TotalClaimed == 10_000 }) {
		t.Errorf("it is not claimed: %+v", w.Ledger.Channel(signer.ID))
	}
}

// TestUnsupported: payment channels are not offered if the facilitator says that it does not settle them. They are while it does not
// respond.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.opened(bob, 1)
	voucher := w.channelPayer(alice.Wallet).sign(sendPath, 10_000, 0)
	supported := func(body string) func(http.ResponseWriter, *http.Request) bool {
		return func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/supported" {
				if body == "" {
					testkit.HangUp(rw)
				}
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write([]byte(body))
			}
			return r.URL.Path == "/supported"
		}
	}
	offers := func(want string) func() bool { return func() bool { return schemes(w.price(sendPath)) == want } }
	mend := w.breakFacilitator(supported(""))
	w.recoverUntil(func() bool { return true })
	if !offers("batch-settlement exact")() {
		t.Errorf("a facilitator that does not respond: the 402 offers %s", schemes(w.price(sendPath)))
	}
	mend()
	kinds, _ := json.Marshal(x402.SupportedResponse{Kinds: []x402.SupportedKind{{X402Version: 2, Scheme: x402.SchemeExact,
		Network: testkit.PlayMoney.ID}}})
	mend = w.breakFacilitator(supported(string(kinds)))
	if !w.recoverUntil(offers("exact")) {
		t.Errorf("the 402 offers %s, want exact only", schemes(w.price(sendPath)))
	}
	refusedFor(t, alice.sendWith(voucher, bob, "not now"))
	if !strings.Contains(w.log.String(), "payment channels are not offered") {
		t.Error("the log does not say so")
	}
	mend()
	if !w.recoverUntil(offers("batch-settlement exact")) {
		t.Errorf("the 402 offers %s again", schemes(w.price(sendPath)))
	}
	alice.sendWith(voucher, bob, "now").Want(t, "the same voucher", http.StatusOK)
}
