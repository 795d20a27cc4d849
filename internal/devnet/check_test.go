package devnet

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
)

// pay returns a payment of 0.005 USDC by an account, changed before it is signed, and the requirements it meets.
func pay(t testing.TB, payer Account, change func(a *x402.Authorization)) (*x402.PaymentPayload, x402.PaymentRequirements) {
	t.Helper()
	requirements := token.Requirements(5000, Payee, 60)
	return payFor(t, payer, requirements, change), requirements
}

func payFor(t testing.TB, payer Account, requirements x402.PaymentRequirements, change func(a *x402.Authorization)) *x402.PaymentPayload {
	t.Helper()
	key := keyOf(t, payer)
	payload, err := x402.Sign(t.Context(), x402.NewKeySigner(key), requirements, nil, nil, time.Now())
	noError(t, err)
	if change == nil {
		return payload
	}
	change(&payload.Payload.Authorization)
	domain, err := x402.DomainOf(requirements)
	noError(t, err)
	payload.Payload.Signature, err = x402.SignAuthorization(key, domain, payload.Payload.Authorization)
	noError(t, err)
	return payload
}

// checkedPayment is a payment and what it is checked against.
type checkedPayment struct {
	*testing.T
	ledger       *Ledger
	payload      *x402.PaymentPayload
	requirements x402.PaymentRequirements
}

// resign signs again after the requirements changed, in the domain they name now.
func (p *checkedPayment) resign() {
	p.payload = payFor(p.T, Accounts()[0], p.requirements, nil)
}

func fromNow(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }

var hugeNumber = strings.Repeat("9", 77)

// checks are payments by the first account, and what verify and settle say about them. The number is that of the rule.
var checks = []struct {
	name   string
	before func(a *x402.Authorization)
	after  func(p *checkedPayment)
	reason string // "" if the payment is good
}{
	{"a good payment", nil, nil, ""},
	{"valid after ten minutes ago", func(a *x402.Authorization) { a.ValidAfter = fromNow(-10 * time.Minute) }, nil, ""},
	{"valid for ever", func(a *x402.Authorization) { a.ValidBefore = hugeNumber }, nil, ""},

	{"1: another scheme accepted", nil, func(p *checkedPayment) { p.payload.Accepted.Scheme = "upto" }, x402.ReasonScheme},
	{"1: another scheme required", nil, func(p *checkedPayment) { p.requirements.Scheme = "" }, x402.ReasonScheme},
	{"1: another network accepted", nil, func(p *checkedPayment) { p.payload.Accepted.Network = x402.NetworkBase },
		x402.ReasonNetworkMismatch},
	{"1: a network that is not ours", nil, func(p *checkedPayment) {
		p.payload.Accepted.Network, p.requirements.Network = x402.NetworkBase, x402.NetworkBase
	}, x402.ReasonInvalidNetwork},
	{"2: requirements without payee", nil, func(p *checkedPayment) { p.requirements.PayTo = "" }, x402.ReasonInvalidRequirements},
	{"2: requirements in dollars", nil, func(p *checkedPayment) { p.requirements.Amount = "0.005" }, x402.ReasonInvalidRequirements},
	{"3: to somebody else", func(a *x402.Authorization) { a.To = stranger }, nil, x402.ReasonRecipientMismatch},
	{"3: too little", func(a *x402.Authorization) { a.Value = "4999" }, nil, x402.ReasonValueMismatch},
	{"3: too much", func(a *x402.Authorization) { a.Value = "5001" }, nil, x402.ReasonValueMismatch},
	{"4: ended", func(a *x402.Authorization) { a.ValidBefore = fromNow(-time.Minute) }, nil, x402.ReasonValidBefore},
	{"4: ends in 4 seconds", func(a *x402.Authorization) { a.ValidBefore = fromNow(4 * time.Second) }, nil, x402.ReasonValidBefore},
	{"4: not yet valid", func(a *x402.Authorization) { a.ValidAfter = fromNow(time.Minute) }, nil, x402.ReasonValidAfter},
	{"4: never valid", func(a *x402.Authorization) { a.ValidAfter = hugeNumber }, nil, x402.ReasonValidAfter},
	{"5: no extra", nil, func(p *checkedPayment) { p.requirements.Extra = nil }, x402.ReasonMissingDomain},
	{"5: no name", nil, func(p *checkedPayment) { delete(p.requirements.Extra, "name") }, x402.ReasonMissingDomain},
	{"5: version as a number", nil, func(p *checkedPayment) { p.requirements.Extra["version"] = 2.0 }, x402.ReasonMissingDomain},
	{"5: no token at the asset", nil, func(p *checkedPayment) { p.requirements.Asset = stranger; p.resign() }, x402.ReasonNotEIP3009},
	{"5: the asset is no address", nil, func(p *checkedPayment) { p.requirements.Asset = "USDC" }, x402.ReasonNotEIP3009},
	{"6: in another's name", nil, func(p *checkedPayment) { p.payload.Payload.Authorization.From = Accounts()[1].Address },
		x402.ReasonSignature},
	{"6: changed after signing", nil, func(p *checkedPayment) { p.payload.Payload.Authorization.Nonce = nonce(1) }, x402.ReasonSignature},
	{"7: used", nil, func(p *checkedPayment) {
		a := p.payload.Payload.Authorization
		noError(p, p.ledger.Transfer(a.From, a.To, 5000, a.Nonce, "0x01"))
	}, x402.ReasonNonceAlreadyUsed},
	{"7: cancelled", nil, func(p *checkedPayment) {
		noError(p, p.ledger.Cancel(Accounts()[0].Address, p.payload.Payload.Authorization.Nonce))
	}, x402.ReasonNonceAlreadyUsed},
	{"7: another token name", nil, func(p *checkedPayment) { p.requirements.Extra["name"] = "USD Coin"; p.resign() }, x402.ReasonTokenName},
	{"7: another token version", nil, func(p *checkedPayment) { p.requirements.Extra["version"] = "1"; p.resign() }, x402.ReasonTokenVersion},
	{"7: no money", nil, func(p *checkedPayment) { empty(p.T, p.ledger, Accounts()[0]) }, x402.ReasonInsufficientBalance},
	{"7: more than 64 bits of money", nil, func(p *checkedPayment) { p.requirements.Amount = hugeNumber; p.resign() },
		x402.ReasonInsufficientBalance},
	{"7: used before name", nil, func(p *checkedPayment) {
		p.requirements.Extra["name"] = "USD Coin"
		p.resign()
		noError(p, p.ledger.Cancel(Accounts()[0].Address, p.payload.Payload.Authorization.Nonce))
	}, x402.ReasonNonceAlreadyUsed},
	{"7: name before balance", nil, func(p *checkedPayment) {
		p.requirements.Extra["name"] = "USD Coin"
		p.resign()
		empty(p.T, p.ledger, Accounts()[0])
	}, x402.ReasonTokenName},
	{"7: version before balance", nil, func(p *checkedPayment) {
		p.requirements.Extra["version"] = "1"
		p.resign()
		empty(p.T, p.ledger, Accounts()[0])
	}, x402.ReasonTokenVersion},
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, row := range checks {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := &checkedPayment{T: t, ledger: openLedger(t, "")}
			p.payload, p.requirements = pay(t, Accounts()[0], row.before)
			if row.after != nil {
				// The requirements' extra is shared with the payload's; each row changes its own.
				p.requirements.Extra = map[string]any{"name": token.AssetName, "version": token.AssetVersion}
				row.after(p)
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
			verdict, err := facilitator.settle(request{network: NetworkID, call: facilitator.transferCall(p.payload, p.requirements)})
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
	noError(t, ledger.Transfer(account.Address, stranger, ledger.Balance(account.Address), nonce(99), "0x99"))
}
