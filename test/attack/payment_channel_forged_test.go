//go:build attack

package attack

import (
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// forgery is a payment that no server may take.
type forgery struct {
	name   string
	reason string // of the 402, or "" for a 400
	change func(*x402.BatchPayment)
}

// channelDomain is the domain of vouchers on the play-money network.
var channelDomain = x402.NewBatchDomain(testkit.PlayMoney.ChainID)

// resigned changes the channel, and computes its id and signs the voucher anew.
func resigned(t testing.TB, key *ecdsa.PrivateKey, domain x402.BatchDomain, change func(*x402.ChannelConfig)) func(*x402.BatchPayment) {
	return func(p *x402.BatchPayment) {
		t.Helper()
		change(&p.Payload.ChannelConfig)
		id, err := domain.ChannelID(p.Payload.ChannelConfig)
		if err != nil {
			t.Fatal(err)
		}
		var amount uint64
		if _, err := fmt.Sscan(p.Payload.Voucher.MaxClaimableAmount, &amount); err != nil {
			t.Fatal(err)
		}
		if p.Payload.Voucher, err = domain.SignVoucher(t.Context(), x402.NewKeySigner(key), id, amount); err != nil {
			t.Fatal(err)
		}
	}
}

// TestForeignVouchers: vouchers that are signed well, but for something else than the offer.
func TestForeignVouchers(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p, second, bobs := w.payer(w.alice), w.payer(w.alice), w.payer(w.bob)
	charged := p.open(w.s, testkit.Dollar, 2)
	second.open(w.s, testkit.Dollar, 2)
	bobs.open(w.s, testkit.Dollar, 2)
	stranger := testkit.NewKey()
	theirs := func(of *channelPayer) x402.Voucher {
		payment, err := of.signer.Sign(t.Context(), charged+sendPrice, 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return payment.Payload.Voucher
	}
	again := func(change func(*x402.ChannelConfig)) func(*x402.BatchPayment) {
		return resigned(t, w.alice.wallet, channelDomain, change)
	}
	forgeries := []forgery{
		{"of the payer's other channel", x402.ReasonBatchChannelID, func(p *x402.BatchPayment) { p.Payload.Voucher = theirs(second) }},
		{"of somebody else's channel", x402.ReasonBatchChannelID, func(p *x402.BatchPayment) { p.Payload.Voucher = theirs(bobs) }},
		{"signed for the payer's other channel", x402.ReasonBatchVoucherSignature, func(p *x402.BatchPayment) { p.Payload.Voucher.Signature = theirs(second).Signature }},
		{"signed by somebody else", x402.ReasonBatchVoucherSignature, func(p *x402.BatchPayment) {
			p.Payload.Voucher, _ = channelDomain.SignVoucher(t.Context(), x402.NewKeySigner(w.bob.wallet), p.Payload.Voucher.ChannelID, charged+sendPrice)
		}},
		{"signed for another amount", x402.ReasonBatchVoucherSignature, func(p *x402.BatchPayment) { p.Payload.Voucher.MaxClaimableAmount = fmt.Sprint(charged + sendPrice + 1) }},
		{"of another receiver", x402.ReasonBatchReceiver, again(func(c *x402.ChannelConfig) { c.Receiver = testkit.Address(stranger) })},
		{"of another authorizer", x402.ReasonBatchReceiverAuthorizer, again(func(c *x402.ChannelConfig) { c.ReceiverAuthorizer = testkit.Address(stranger) })},
		{"of another token", x402.ReasonBatchToken, again(func(c *x402.ChannelConfig) { c.Token = testkit.Address(stranger) })},
		{"of a shorter delay", x402.ReasonBatchWithdrawDelay, again(func(c *x402.ChannelConfig) { c.WithdrawDelay = 900 })},
		{"of a longer delay", x402.ReasonBatchWithdrawDelay, again(func(c *x402.ChannelConfig) { c.WithdrawDelay = 172_800 })},
		{"without a key", x402.ReasonBatchVoucherSignature, again(func(c *x402.ChannelConfig) { c.PayerAuthorizer = "0x" + strings.Repeat("0", 40) })},
		{"with the channel id of another chain", x402.ReasonBatchChannelID, resigned(t, w.alice.wallet, x402.NewBatchDomain(8453), func(*x402.ChannelConfig) {})},
		{"signed for another chain", x402.ReasonBatchVoucherSignature, func(p *x402.BatchPayment) {
			p.Payload.Voucher, _ = x402.NewBatchDomain(8453).SignVoucher(t.Context(), x402.NewKeySigner(w.alice.wallet), p.Payload.Voucher.ChannelID, charged+sendPrice)
		}},
		{"of a channel that names the payer, by another key", x402.ReasonBatchChannelNotFound,
			resigned(t, stranger, channelDomain, func(c *x402.ChannelConfig) { c.PayerAuthorizer = testkit.Address(stranger) })},
		{"of a channel that was never opened", x402.ReasonBatchChannelNotFound, again(func(c *x402.ChannelConfig) { c.Salt = "0x" + strings.Repeat("ff", 32) })},
	}
	for name, change := range map[string]func(*x402.PaymentRequirements){
		"scheme":  func(r *x402.PaymentRequirements) { r.Scheme = x402.SchemeExact },
		"network": func(r *x402.PaymentRequirements) { r.Network = x402.NetworkBase },
		"amount":  func(r *x402.PaymentRequirements) { r.Amount = "1" },
		"asset":   func(r *x402.PaymentRequirements) { r.Asset = testkit.Address(stranger) },
		"payee":   func(r *x402.PaymentRequirements) { r.PayTo = testkit.Address(stranger) },
		"authorizer": func(r *x402.PaymentRequirements) {
			r.Extra = map[string]any{"receiverAuthorizer": testkit.Address(stranger), "withdrawDelay": 86_400, "name": "USDC", "version": "2"}
		},
		"delay": func(r *x402.PaymentRequirements) {
			r.Extra = map[string]any{"receiverAuthorizer": testkit.Address(authorizer), "withdrawDelay": 900, "name": "USDC", "version": "2"}
		},
	} {
		reason := "No matching payment requirements"
		if name == "scheme" {
			reason = ""
		}
		forgeries = append(forgeries, forgery{"for an offer with another " + name, reason, func(p *x402.BatchPayment) { change(&p.Accepted) }})
	}
	w.tryAll(p, charged, forgeries)
}

// tryAll sends forgeries and then a good voucher for the same amount, which is charged.
func (w *channelWorld) tryAll(p *channelPayer, charged uint64, forgeries []forgery) {
	w.T.Helper()
	asked := w.proxy.count("/verify") + w.proxy.count("/settle deposit")
	for _, f := range forgeries {
		o := p.says("forged", charged+sendPrice, 0, f.change)
		r := w.s.pay(o)
		required, err := x402.DecodePaymentRequired(r.Header.Get(x402.HeaderPaymentRequired))
		switch {
		case f.reason == "" && r.Status == http.StatusBadRequest:
		case r.Status != http.StatusPaymentRequired || err != nil || required.Error != f.reason || r.Charged:
			w.T.Errorf("a voucher %s: %v, want a 402 with %q", f.name, r, f.reason)
		default:
			if _, state, newest := correctionOf(w.T, r); state.ChannelID != "" || newest != nil {
				w.T.Errorf("a voucher %s opens the state of a channel: %+v %+v", f.name, state, newest)
			}
		}
		if n := w.messages(o.content); n != 0 {
			w.T.Errorf("a voucher %s sent %d messages", f.name, n)
		}
	}
	if n := w.proxy.count("/verify") + w.proxy.count("/settle deposit") - asked; n != 0 {
		w.T.Errorf("the facilitator was asked %d times, want never", n)
	}
	w.s.pay(p.says("not forged", charged+sendPrice, 0)).Want(w.T, "the same voucher unchanged", 200)
	w.check()
}

// TestVoucherSignatures: a signature that the contract would reject is not taken, since it could not be claimed.
func TestVoucherSignatures(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p := w.payer(w.alice)
	charged := p.open(w.s, testkit.Dollar, 1)
	changed := func(change func(raw []byte) []byte) func(*x402.BatchPayment) {
		return func(p *x402.BatchPayment) {
			raw, err := hex.DecodeString(p.Payload.Voucher.Signature[2:])
			if err != nil {
				t.Fatal(err)
			}
			p.Payload.Voucher.Signature = "0x" + hex.EncodeToString(change(raw))
		}
	}
	order, _ := new(big.Int).SetString("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141", 16)
	highS := func(raw []byte) []byte {
		new(big.Int).Sub(order, new(big.Int).SetBytes(raw[32:64])).FillBytes(raw[32:64])
		raw[64] ^= 27 ^ 28
		return raw
	}
	const reason = x402.ReasonBatchVoucherSignature
	w.tryAll(p, charged, []forgery{
		{"with a high s", "", changed(highS)},
		{"with a high s and the first v", "", changed(func(raw []byte) []byte { raw = highS(raw); raw[64] ^= 27 ^ 28; return raw })},
		{"of 64 bytes (EIP-2098)", "", changed(func(raw []byte) []byte { raw[32] |= (raw[64] - 27) << 7; return raw[:64] })},
		{"with v 0 or 1", "", changed(func(raw []byte) []byte { raw[64] -= 27; return raw })},
		{"with the other v", reason, changed(func(raw []byte) []byte { raw[64] ^= 27 ^ 28; return raw })},
		{"with a byte more", "", changed(func(raw []byte) []byte { return append(raw, 0) })},
		{"with a flipped bit", reason, changed(func(raw []byte) []byte { raw[7] ^= 1; return raw })},
		{"of zeros", "", changed(func([]byte) []byte { return make([]byte, 65) })},
		{"of a contract (ERC-6492)", "", changed(func(raw []byte) []byte { return append(raw, make([]byte, 200)...) })},
	})
}

// TestForgedDeposits: a deposit that the chain would reject, or that is not for this channel, moves nothing and pays nothing.
func TestForgedDeposits(t *testing.T) {
	t.Parallel()
	w := newChannelWorld(t)
	p, other := w.payer(w.alice), w.payer(w.alice)
	known := w.payer(w.alice)
	charged := known.open(w.s, testkit.Dollar, 1)
	foreign, err := other.signer.Sign(t.Context(), sendPrice, testkit.Dollar, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	before, seconds := w.Ledger.Balance(testkit.Address(w.alice.wallet)), func(n int64) string { return fmt.Sprint(time.Now().Unix() + n) }
	for name, change := range map[string]func(*x402.ChannelDeposit){
		"a deposit for another channel": func(d *x402.ChannelDeposit) { *d = *foreign.Payload.Deposit },
		"another amount than signed":    func(d *x402.ChannelDeposit) { d.Amount = "2000000" },
		"another salt than signed": func(d *x402.ChannelDeposit) {
			d.Authorization.ERC3009.Salt = foreign.Payload.Deposit.Authorization.ERC3009.Salt
		},
		"a later end than signed":            func(d *x402.ChannelDeposit) { d.Authorization.ERC3009.ValidBefore = seconds(1000) },
		"an end that is over":                func(d *x402.ChannelDeposit) { d.Authorization.ERC3009.ValidBefore = seconds(-1) },
		"a start in the future":              func(d *x402.ChannelDeposit) { d.Authorization.ERC3009.ValidAfter = seconds(1000) },
		"no amount":                          func(d *x402.ChannelDeposit) { d.Amount = "0" },
		"2^63":                               func(d *x402.ChannelDeposit) { d.Amount = "9223372036854775808" },
		"2^128-1":                            func(d *x402.ChannelDeposit) { d.Amount = "340282366920938463463374607431768211455" },
		"2^128":                              func(d *x402.ChannelDeposit) { d.Amount = "340282366920938463463374607431768211456" },
		"a contract's signature of a wallet": func(d *x402.ChannelDeposit) { d.Authorization.ERC3009.Signature += strings.Repeat("00", 64) },
	} {
		for _, to := range []struct {
			payer  *channelPayer
			amount uint64
		}{{p, sendPrice}, {known, charged + sendPrice}} {
			o := to.payer.says("with a forged deposit", to.amount, testkit.Dollar, func(p *x402.BatchPayment) { change(p.Payload.Deposit) })
			r := w.s.pay(o)
			if r.Status != http.StatusBadRequest && r.Status != http.StatusPaymentRequired || r.Charged || w.messages(o.content) != 0 {
				t.Errorf("%s: %v and %d messages, want 400 or 402 and none", name, r, w.messages(o.content))
			}
		}
	}
	poor := &agent{w: w.world, name: w.alice.name, id: w.alice.id, key: w.alice.key, wallet: w.Wallet(sendPrice)}
	w.s.pay(w.payer(poor).says("more than the wallet has", sendPrice, sendPrice+1)).WantRefused(t, "a deposit above the wallet's balance", 402)
	if has := w.Ledger.Balance(testkit.Address(w.alice.wallet)); has != before {
		t.Errorf("the forged deposits moved %d", before-has)
	}
	if state := w.Ledger.Channel(p.id); state.Balance != 0 || w.Ledger.Received(devnet.Payee).Claimed != 0 {
		t.Errorf("the channel has %+v, want nothing", state)
	}
	w.check()
}
