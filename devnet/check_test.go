package devnet

import (
	"encoding/hex"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

func fromHex(digits string) []byte {
	raw, err := hex.DecodeString(strings.TrimPrefix(digits, "0x"))
	if err != nil {
		panic(err)
	}
	return raw
}

// pay returns a payment of 0.005 USDC by an account, changed before it is signed, and the requirements it meets.
func pay(t testing.TB, payer Account, change func(a *x402.Authorization)) (*x402.PaymentPayload, x402.PaymentRequirements) {
	t.Helper()
	requirements := token.Requirements(5000, Payee, 60)
	return payFor(t, payer, requirements, change), requirements
}

func payFor(t testing.TB, payer Account, requirements x402.PaymentRequirements, change func(a *x402.Authorization)) *x402.PaymentPayload {
	t.Helper()
	key := keyOf(t, payer)
	payload, err := x402.Sign(key, requirements, nil, nil, time.Now())
	if err != nil {
		t.Fatalf("sign a payment: %v", err)
	}
	if change == nil {
		return payload
	}
	change(&payload.Payload.Authorization)
	domain, err := x402.DomainOf(requirements)
	if err != nil {
		t.Fatalf("the domain of the requirements: %v", err)
	}
	payload.Payload.Signature, err = x402.SignAuthorization(key, domain, payload.Payload.Authorization)
	if err != nil {
		t.Fatalf("sign a changed payment: %v", err)
	}
	return payload
}

func TestCheck(t *testing.T) {
	t.Parallel()
	alice, bob := Accounts()[0], Accounts()[1]
	in := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	huge := strings.Repeat("9", 77)
	type payment struct {
		ledger       *Ledger
		payload      *x402.PaymentPayload
		requirements x402.PaymentRequirements
	}
	// resign signs again after the requirements changed, in the domain they name now.
	resign := func(t *testing.T, p *payment) { p.payload = payFor(t, alice, p.requirements, nil) }
	for _, row := range []struct {
		name   string
		before func(a *x402.Authorization)
		after  func(t *testing.T, p *payment)
		reason string // "" if the payment is good
	}{
		{"a good payment", nil, nil, ""},
		{"valid after ten minutes ago", func(a *x402.Authorization) { a.ValidAfter = in(-10 * time.Minute) }, nil, ""},
		{"valid for ever", func(a *x402.Authorization) { a.ValidBefore = huge }, nil, ""},
		{"v 0 or 1", nil, func(_ *testing.T, p *payment) {
			raw := fromHex(p.payload.Payload.Signature)
			raw[64] -= 27
			p.payload.Payload.Signature = "0x" + hex.EncodeToString(raw)
		}, ""},

		{"1: another scheme accepted", nil, func(_ *testing.T, p *payment) { p.payload.Accepted.Scheme = "upto" }, x402.ReasonScheme},
		{"1: another scheme required", nil, func(_ *testing.T, p *payment) { p.requirements.Scheme = "" }, x402.ReasonScheme},
		{"1: another network accepted", nil, func(_ *testing.T, p *payment) { p.payload.Accepted.Network = x402.NetworkBase }, x402.ReasonNetworkMismatch},
		{"1: a network that is not ours", nil, func(_ *testing.T, p *payment) {
			p.payload.Accepted.Network, p.requirements.Network = x402.NetworkBase, x402.NetworkBase
		}, x402.ReasonInvalidNetwork},
		{"2: requirements without payee", nil, func(_ *testing.T, p *payment) { p.requirements.PayTo = "" }, x402.ReasonInvalidRequirements},
		{"2: requirements in dollars", nil, func(_ *testing.T, p *payment) { p.requirements.Amount = "0.005" }, x402.ReasonInvalidRequirements},
		{"3: to somebody else", func(a *x402.Authorization) { a.To = stranger }, nil, x402.ReasonRecipientMismatch},
		{"3: too little", func(a *x402.Authorization) { a.Value = "4999" }, nil, x402.ReasonValueMismatch},
		{"3: too much", func(a *x402.Authorization) { a.Value = "5001" }, nil, x402.ReasonValueMismatch},
		{"4: ended", func(a *x402.Authorization) { a.ValidBefore = in(-time.Minute) }, nil, x402.ReasonValidBefore},
		{"4: ends in 4 seconds", func(a *x402.Authorization) { a.ValidBefore = in(4 * time.Second) }, nil, x402.ReasonValidBefore},
		{"4: not yet valid", func(a *x402.Authorization) { a.ValidAfter = in(time.Minute) }, nil, x402.ReasonValidAfter},
		{"4: never valid", func(a *x402.Authorization) { a.ValidAfter = huge }, nil, x402.ReasonValidAfter},
		{"5: no extra", nil, func(_ *testing.T, p *payment) { p.requirements.Extra = nil }, x402.ReasonMissingDomain},
		{"5: no name", nil, func(_ *testing.T, p *payment) { delete(p.requirements.Extra, "name") }, x402.ReasonMissingDomain},
		{"5: version as a number", nil, func(_ *testing.T, p *payment) { p.requirements.Extra["version"] = 2.0 }, x402.ReasonMissingDomain},
		{"5: no token at the asset", nil, func(t *testing.T, p *payment) { p.requirements.Asset = stranger; resign(t, p) }, x402.ReasonNotEIP3009},
		{"5: the asset is no address", nil, func(_ *testing.T, p *payment) { p.requirements.Asset = "USDC" }, x402.ReasonNotEIP3009},
		{"6: in another's name", nil, func(_ *testing.T, p *payment) { p.payload.Payload.Authorization.From = bob.Address }, x402.ReasonSignature},
		{"6: changed after signing", nil, func(_ *testing.T, p *payment) { p.payload.Payload.Authorization.Nonce = nonce(1) }, x402.ReasonSignature},
		{"6: a smart wallet", nil, func(_ *testing.T, p *payment) { p.payload.Payload.Signature += "00" }, x402.ReasonSignature},
		{"6: an undeployed smart wallet", nil, func(_ *testing.T, p *payment) { p.payload.Payload.Signature += erc6492Suffix }, x402.ReasonUndeployedWallet},
		{"6: v 29", nil, func(_ *testing.T, p *payment) {
			p.payload.Payload.Signature = p.payload.Payload.Signature[:keySignature-2] + "1d"
		}, x402.ReasonSignature},
		{"6: a high s", nil, func(_ *testing.T, p *payment) {
			raw := fromHex(p.payload.Payload.Signature)
			new(big.Int).Sub(evm.Order(), new(big.Int).SetBytes(raw[32:64])).FillBytes(raw[32:64])
			raw[64] ^= 27 ^ 28
			p.payload.Payload.Signature = "0x" + hex.EncodeToString(raw)
		}, x402.ReasonSignature},
		{"7: used", nil, func(t *testing.T, p *payment) {
			a := p.payload.Payload.Authorization
			if err := p.ledger.Transfer(a.From, a.To, 5000, a.Nonce, "0x01"); err != nil {
				t.Fatalf("use the authorization: %v", err)
			}
		}, x402.ReasonNonceAlreadyUsed},
		{"7: cancelled", nil, func(t *testing.T, p *payment) {
			if err := p.ledger.Cancel(alice.Address, p.payload.Payload.Authorization.Nonce); err != nil {
				t.Fatalf("cancel the authorization: %v", err)
			}
		}, x402.ReasonNonceAlreadyUsed},
		{"7: another token name", nil, func(t *testing.T, p *payment) { p.requirements.Extra["name"] = "USD Coin"; resign(t, p) }, x402.ReasonTokenName},
		{"7: another token version", nil, func(t *testing.T, p *payment) { p.requirements.Extra["version"] = "1"; resign(t, p) }, x402.ReasonTokenVersion},
		{"7: no money", nil, func(t *testing.T, p *payment) { empty(t, p.ledger, alice) }, x402.ReasonInsufficientBalance},
		{"7: more than 64 bits of money", nil, func(t *testing.T, p *payment) { p.requirements.Amount = huge; resign(t, p) }, x402.ReasonInsufficientBalance},
		{"7: used before name", nil, func(t *testing.T, p *payment) {
			p.requirements.Extra["name"] = "USD Coin"
			resign(t, p)
			if err := p.ledger.Cancel(alice.Address, p.payload.Payload.Authorization.Nonce); err != nil {
				t.Fatalf("cancel the authorization: %v", err)
			}
		}, x402.ReasonNonceAlreadyUsed},
		{"7: name before balance", nil, func(t *testing.T, p *payment) {
			p.requirements.Extra["name"] = "USD Coin"
			resign(t, p)
			empty(t, p.ledger, alice)
		}, x402.ReasonTokenName},
		{"7: version before balance", nil, func(t *testing.T, p *payment) {
			p.requirements.Extra["version"] = "1"
			resign(t, p)
			empty(t, p.ledger, alice)
		}, x402.ReasonTokenVersion},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := &payment{ledger: openLedger(t, "")}
			p.payload, p.requirements = pay(t, alice, row.before)
			if row.after != nil {
				// The requirements' extra is shared with the payload's; each row changes its own.
				p.requirements.Extra = map[string]any{"name": token.AssetName, "version": token.AssetVersion}
				row.after(t, p)
			}
			revenue := p.ledger.Balance(Payee)
			facilitator := NewFacilitator(p.ledger)
			reason := ""
			if invalid := facilitator.check(p.payload, p.requirements, time.Now()); invalid != nil {
				reason = invalid.Reason
			}
			if reason != row.reason {
				t.Errorf("verify says %q, want %q", reason, row.reason)
			}
			verdict, err := facilitator.settle(p.payload, p.requirements, time.Now())
			if err != nil || verdict.Success != (row.reason == "") || verdict.ErrorReason != row.reason {
				t.Errorf("settle says %+v (%v), want reason %q", verdict, err, row.reason)
			}
			if moved := p.ledger.Balance(Payee) != revenue; moved != (row.reason == "") {
				t.Errorf("the money moved: %t, want %t", moved, row.reason == "")
			}
		})
	}
}

// empty takes all of an account's money.
func empty(t *testing.T, ledger *Ledger, account Account) {
	t.Helper()
	if err := ledger.Transfer(account.Address, stranger, ledger.Balance(account.Address), nonce(99), "0x99"); err != nil {
		t.Fatalf("empty the account: %v", err)
	}
}
