package devnet

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// settlementRoom is how long an authorization must still be valid at verify and settle, in seconds.
const settlementRoom = 6

var (
	addressForm = regexp.MustCompile(`^0x[0-9a-f]{40}$`)
	// atomicForm matches an unsigned decimal in canonical form.
	atomicForm = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
)

// token is the only token: the USDC of Base Sepolia.
var token, _ = x402.LookupNetwork(NetworkID)

// check makes the checks that a facilitator must make at verify, in the same order. It returns the first reason to
// reject the payment, or nil. The caller has checked the payload's form.
func (f *Facilitator) check(payload *x402.PaymentPayload, requirements x402.PaymentRequirements, now time.Time) *x402.Invalid {
	return cmp.Or(
		checkTerms(payload.Accepted, requirements, x402.SchemeExact, x402.ReasonScheme, x402.ReasonNetworkMismatch),
		checkRequirements(requirements),
		checkTransfer(payload.Payload.Authorization, requirements),
		checkTimes(payload.Payload.Authorization, now, x402.ReasonValidBefore, x402.ReasonValidAfter),
		checkSignature(payload.Payload, requirements),
		f.simulate(payload.Payload.Authorization, requirements),
	)
}

// checkTerms checks scheme and network.
func checkTerms(accepted, requirements x402.PaymentRequirements, scheme, otherScheme, otherNetwork string) *x402.Invalid {
	switch {
	case accepted.Scheme != scheme || requirements.Scheme != scheme:
		return refusal(otherScheme, "accepted.scheme and paymentRequirements.scheme must be "+scheme)
	case accepted.Network != requirements.Network:
		return refusal(otherNetwork, "accepted.network is not paymentRequirements.network")
	case requirements.Network != NetworkID:
		return refusal(x402.ReasonInvalidNetwork, "the dev network is "+NetworkID)
	}
	return nil
}

// checkRequirements checks the form of the requirements.
func checkRequirements(requirements x402.PaymentRequirements) *x402.Invalid {
	if !addressForm.MatchString(strings.ToLower(requirements.PayTo)) || !atomicForm.MatchString(requirements.Amount) {
		return refusal(x402.ReasonInvalidRequirements, "paymentRequirements need an address payTo and "+
			"an amount in atomic units")
	}
	return nil
}

// checkTransfer checks payee and amount. The amount must be equal.
func checkTransfer(a x402.Authorization, requirements x402.PaymentRequirements) *x402.Invalid {
	if !strings.EqualFold(a.To, requirements.PayTo) {
		return refusal(x402.ReasonRecipientMismatch, "authorization.to is not payTo")
	}
	if a.Value != requirements.Amount {
		return refusal(x402.ReasonValueMismatch, "authorization.value is not exactly amount")
	}
	return nil
}

// checkTimes checks the time window in which the token contract accepts the authorization.
func checkTimes(a x402.Authorization, now time.Time, ended, early string) *x402.Invalid {
	// A number above 2^63-1 is a time that never comes: invalid as a start, valid as an end.
	if validBefore, err := strconv.ParseInt(a.ValidBefore, 10, 64); err == nil && validBefore < now.Unix()+settlementRoom {
		return refusal(ended, "the authorization has ended or ends in less than 6 seconds")
	}
	if validAfter, err := strconv.ParseInt(a.ValidAfter, 10, 64); err != nil || validAfter > now.Unix() {
		return refusal(early, "the authorization is not valid yet")
	}
	return nil
}

// checkSignature checks that the payer's key made the signature, in the domain that the requirements name. As in a real
// facilitator, the simulation checks whether that is the token's domain.
func checkSignature(payload x402.ExactPayload, requirements x402.PaymentRequirements) *x402.Invalid {
	if !strings.EqualFold(requirements.Asset, token.Asset) {
		return refusal(x402.ReasonNotEIP3009, "there is no token at this asset; the only one is "+token.Asset)
	}
	domain, err := x402.DomainOf(requirements)
	if err != nil {
		return refusal(x402.ReasonMissingDomain, err.Error())
	}
	digest, err := domain.TransferDigest(payload.Authorization)
	if err != nil || !x402.SignedBy(digest, payload.Signature, payload.Authorization.From) {
		return refusal(x402.ReasonSignature, "the signature is not by authorization.from; the dev network has no smart wallets")
	}
	return nil
}

// simulate returns the reason why the token contract would reject the transfer now, or nil. The checks have the same
// order as in real facilitators.
func (f *Facilitator) simulate(a x402.Authorization, requirements x402.PaymentRequirements) *x402.Invalid {
	amount, err := strconv.ParseUint(a.Value, 10, 64)
	switch {
	case f.ledger.Used(a.From, a.Nonce):
		return refusalOf(x402.ReasonNonceAlreadyUsed, errAuthorizationUsed)
	case requirements.Extra["name"] != token.AssetName:
		return refusal(x402.ReasonTokenName, "the token's name is "+token.AssetName)
	case requirements.Extra["version"] != token.AssetVersion:
		return refusal(x402.ReasonTokenVersion, "the token's version is "+token.AssetVersion)
	case err != nil || f.ledger.Balance(a.From) < amount:
		return refusalOf(x402.ReasonInsufficientBalance, errInsufficientBalance)
	}
	return nil
}

func refusal(reason, message string) *x402.Invalid {
	return &x402.Invalid{Reason: reason, Message: message}
}

// refusalOf returns the reason for what a contract returns, or nil.
func refusalOf(reason string, err error) *x402.Invalid {
	if err == nil {
		return nil
	}
	return refusal(reason, err.Error())
}
