package service

import (
	"crypto/ecdsa"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// authorizer is the server's key for payment channels.
var authorizer = testkit.NewKey()

// leastDeposit is small, so that tests can use up a deposit with few calls.
const leastDeposit, suggestedDeposit = 5000, 50_000

// withChannels offers payment channels.
func withChannels(config *server.Config, _ *payment.Chain, _ string) {
	config.Channels = channel.Config{Authorizer: authorizer, WithdrawDelay: 24 * time.Hour, MinDeposit: suggestedDeposit,
		ClaimAge: 6 * time.Hour, ClaimSum: testkit.Dollar}
}

// zeroSalt is the salt of the official clients.
var zeroSalt = "0x" + strings.Repeat("0", 64)

// channelPayer signs payments for a payment channel of a wallet.
type channelPayer struct {
	w    *world
	key  *ecdsa.PrivateKey
	salt string
}

func (w *world) channelPayer(key *ecdsa.PrivateKey) *channelPayer {
	return &channelPayer{w: w, key: key, salt: zeroSalt}
}

// openChannel registers alice and bob. A payment channel of alice's wallet has 50,000, and has paid one message to bob.
func (w *world) openChannel() (alice, bob *agent, payer *channelPayer) {
	w.T.Helper()
	alice, bob = w.agent("alice"), w.agent("bob")
	payer = w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 5000, suggestedDeposit), bob, "one").Require(w.T, "open", http.StatusOK)
	return alice, bob, payer
}

// offerOf returns the entry of a 402 for payment channels.
func offerOf(t testing.TB, required *x402.PaymentRequired) x402.PaymentRequirements {
	t.Helper()
	for _, offer := range required.Accepts {
		if offer.Scheme == x402.SchemeBatch {
			return offer
		}
	}
	t.Fatalf("the 402 offers no payment channel: %+v", required.Accepts)
	return x402.PaymentRequirements{}
}

// signer returns the signer of the channel for posting to a path.
func (p *channelPayer) signer(path string) *x402.ChannelSigner {
	p.w.T.Helper()
	offer := offerOf(p.w.T, p.w.price(path))
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(p.key), p.salt, offer)
	testkit.NoError(p.w.T, err)
	return signer
}

// sign makes a payment for posting to a path: a voucher for a cumulative amount, with a deposit if that is not 0.
func (p *channelPayer) sign(path string, cumulative, deposit uint64, changes ...func(*x402.BatchPayment)) string {
	p.w.T.Helper()
	signed, err := p.signer(path).Sign(p.w.T.Context(), cumulative, deposit, time.Now())
	testkit.NoError(p.w.T, err)
	return p.encode(signed, changes...)
}

func (p *channelPayer) encode(signed *x402.BatchPayment, changes ...func(*x402.BatchPayment)) string {
	p.w.T.Helper()
	for _, change := range changes {
		change(signed)
	}
	header, err := x402.EncodeBatchPayment(signed)
	testkit.NoError(p.w.T, err)
	p.w.Secret(header, signed.Payload.Voucher.Signature)
	return header
}

// settled decodes PAYMENT-RESPONSE and what it says of the channel.
func settledOf(t testing.TB, a testkit.Reply) (*x402.SettleResponse, x402.BatchExtra) {
	t.Helper()
	settled, err := x402.DecodeSettleResponse(a.Header.Get(x402.HeaderPaymentResponse))
	if err != nil {
		t.Fatalf("no PAYMENT-RESPONSE in %v: %v", a, err)
	}
	extra, err := x402.DecodeBatchExtra(settled.Extra)
	if err != nil {
		t.Fatalf("PAYMENT-RESPONSE %+v: %v", settled, err)
	}
	return settled, extra
}

// correctionOf decodes a corrective 402.
func correctionOf(t testing.TB, a testkit.Reply) (reason string, state x402.ChannelState, newest *x402.VoucherState) {
	t.Helper()
	required, err := x402.DecodePaymentRequired(a.Header.Get(x402.HeaderPaymentRequired))
	if a.Status != http.StatusPaymentRequired || err != nil {
		t.Fatalf("%v, want a 402 (%v)", a, err)
	}
	if a.Header.Get(x402.HeaderPaymentResponse) != "" {
		t.Errorf("%v has a PAYMENT-RESPONSE, so official clients ignore its correction", a)
	}
	offer := offerOf(t, required)
	state, newest, ok := x402.Correction(offer)
	if !ok {
		t.Fatalf("no correction in %+v", offer)
	}
	return required.Error, state, newest
}

// checkChannels compares each payment channel with its payments and with the chain.
func (w *world) checkChannels() {
	w.T.Helper()
	wrong := w.Count(`SELECT count(*) FROM payment_channels c WHERE charged <> (
		SELECT coalesce(sum(amount), 0) FROM payments p WHERE p.payment_channel_id = c.id AND p.state = 'delivered')`)
	if wrong != 0 {
		w.T.Errorf("%d payment channels were charged something else than their delivered calls cost", wrong)
	}
	if n := w.Count(storetest.WrongChannelSums); n != 0 {
		w.T.Errorf("the sums of payment channels are not theirs for %d payees", n)
	}
	if unpaid := w.Count(`SELECT count(*) FROM payment_channels WHERE charged > balance`); unpaid != 0 {
		w.T.Errorf("%d payment channels were charged more than they hold", unpaid)
	}
}

// signGet makes a voucher for getting a path.
func (p *channelPayer) signGet(path string, cumulative uint64) string {
	p.w.T.Helper()
	signed, err := p.signer(sendPath).Sign(p.w.T.Context(), cumulative, 0, time.Now())
	testkit.NoError(p.w.T, err)
	signed.Accepted = offerOf(p.w.T, p.w.priceOf(http.MethodGet, path))
	return p.encode(signed)
}
