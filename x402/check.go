package x402

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// MinimumValidity is how long an authorization must still be valid when it arrives. The handler and the settlement
	// in a block need this time. Facilitators require 6 seconds.
	MinimumValidity = 20 * time.Second
	// MaximumValidity is how far ahead validBefore may be. The official clients sign authorizations of up to one hour.
	// A longer validity only means that the record against replays must be kept longer.
	MaximumValidity = 24 * time.Hour
)

// Checker makes the checks of a resource server before it calls a facilitator. Create it with [NewChecker]. It is safe
// for concurrent use.
type Checker struct {
	domains map[string]Domain // by network
}

// NewChecker returns a checker for payments with the tokens of these networks. It returns an error for a malformed
// token address.
func NewChecker(networks ...Network) (Checker, error) {
	domains := make(map[string]Domain, len(networks))
	for _, network := range networks {
		domain, err := network.domain()
		if err != nil {
			return Checker{}, err
		}
		domains[network.ID] = domain
	}
	return Checker{domains}, nil
}

// Checked is the result of the local checks of a payment, as a ledger stores it.
type Checked struct {
	// Payer is the payer's address in lower case.
	Payer string
	// Nonce is the nonce in lower case. (network, asset, Payer, Nonce) identifies the authorization.
	Nonce string
	// ValidBefore is the end of the authorization, in full seconds. It is zero if the payment is outside of its time
	// window.
	ValidBefore time.Time
	// Conclusive is true if the signature of a private key was verified. It is false for the longer signature of a
	// smart wallet (ERC-1271, ERC-6492), which only the chain can verify: call the facilitator's /verify. Until then
	// Payer is unproven, because settled authorizations are public and anybody can copy one.
	Conclusive bool
}

// Check checks a payment against the server's own payment requirements (not the payer's copy) at the server's time now.
// It checks the payee, the exact amount, the signature, and last the time window: validAfter is not after now, and
// validBefore is between [MinimumValidity] and [MaximumValidity] ahead.
//
// The error is an [*Invalid] if the payment is invalid. With an Invalid whose OutOfTime is true, Checked still
// identifies the authorization. Any other error is a mistake of the server: the payment requirements are not for a
// network and token of this checker. Check expects a payload from [ParsePaymentPayload] or [ParsePaymentPayloadV1],
// which check its form.
func (c Checker) Check(offer PaymentRequirements, payload *PaymentPayload, now time.Time) (Checked, error) {
	return c.check(offer, payload, now, !isHex(payload.Payload.Signature, signatureBytes+1, maxSignatureBytes))
}

// CheckTerms is [Checker.Check] without the signature check, for a payer that is known to be a contract. The result is
// never Conclusive.
func (c Checker) CheckTerms(offer PaymentRequirements, payload *PaymentPayload, now time.Time) (Checked, error) {
	return c.check(offer, payload, now, false)
}

func (c Checker) check(offer PaymentRequirements, payload *PaymentPayload, now time.Time, byKey bool) (Checked, error) {
	domain, ok := c.domains[offer.Network]
	if !ok || offer.Scheme != SchemeExact || !domain.isOf(offer) {
		return Checked{}, fmt.Errorf("check payment: the offer (scheme %q, network %q, asset %q) is not one of this checker's",
			offer.Scheme, offer.Network, offer.Asset)
	}
	authorization := payload.Payload.Authorization
	if !strings.EqualFold(authorization.To, offer.PayTo) {
		return Checked{}, invalid(ReasonRecipientMismatch, "authorization.to is %s, but the payee is %s: sign an authorization "+
			"to the offer's payTo", authorization.To, offer.PayTo)
	}
	if authorization.Value != offer.Amount {
		return Checked{}, invalid(ReasonValueMismatch, "authorization.value is %s, but the price is exactly %s atomic units, "+
			"not less and not more: sign an authorization for the offer's amount", authorization.Value, offer.Amount)
	}
	checked := Checked{Payer: strings.ToLower(authorization.From), Nonce: strings.ToLower(authorization.Nonce)}
	if byKey {
		if err := checkSignature(domain, payload.Payload); err != nil {
			return Checked{}, err
		}
		checked.Conclusive = true
	}
	var err error
	checked.ValidBefore, err = checkWindow(authorization, offer, now)
	return checked, err
}

// checkWindow checks the time window of an authorization and returns its end.
func checkWindow(a Authorization, offer PaymentRequirements, now time.Time) (time.Time, error) {
	clock := now.Unix()
	if validAfter, ok := unixSeconds(a.ValidAfter); !ok || validAfter > clock {
		return time.Time{}, outOfTime(ReasonValidAfter, "the authorization is not valid yet: validAfter is %s and the server's "+
			"clock says %d (Unix seconds), %d seconds less: if it was signed just now, your clock is ahead by at least that; sign a new one "+
			"with validAfter \"0\"", a.ValidAfter, clock, validAfter-clock)
	}
	validBefore, ok := unixSeconds(a.ValidBefore)
	earliest, latest := now.Add(MinimumValidity).Unix(), now.Add(MaximumValidity).Unix()
	if ok && validBefore < earliest {
		return time.Time{}, outOfTime(ReasonValidBefore, "the authorization ends too soon or has ended: validBefore is %d and "+
			"must be at least %d (Unix seconds), %.0f seconds after the server's clock, to leave time for the settlement; sign "+
			"a new one that is valid for the offer's maxTimeoutSeconds, %d; if this one was signed so just now, your clock is %d seconds behind",
			validBefore, earliest, MinimumValidity.Seconds(), offer.MaxTimeoutSeconds, clock+int64(offer.MaxTimeoutSeconds)-validBefore)
	}
	if !ok || validBefore > latest {
		return time.Time{}, outOfTime(ReasonValidBefore, "the authorization is valid for too long: validBefore is %s and must be at "+
			"most %d (Unix seconds), %.0f hours after the server's clock; sign a new one that is valid for the offer's "+
			"maxTimeoutSeconds", a.ValidBefore, latest, MaximumValidity.Hours())
	}
	return time.Unix(validBefore, 0).UTC(), nil
}

// unixSeconds converts a decimal to Unix seconds. It returns false for a number above 2^63-1.
func unixSeconds(decimal string) (int64, bool) {
	seconds, err := strconv.ParseInt(decimal, 10, 64)
	return seconds, err == nil
}

// checkSignature checks that the payer's private key made the signature. It also rejects a contract's signature of 65
// bytes, which only the chain can distinguish from a forgery. Callers that have asked the chain use CheckTerms.
func checkSignature(domain Domain, payload ExactPayload) error {
	digest, err := domain.TransferDigest(payload.Authorization)
	if err != nil {
		return invalid(ReasonPayload, "%s", err)
	}
	signer, err := RecoverHex(digest, payload.Signature)
	if err != nil {
		return invalid(ReasonSignature, "the signature is invalid: %s; sign the authorization with EIP-712 by the key of "+
			"authorization.from", err)
	}
	if !strings.EqualFold(signer, payload.Authorization.From) {
		return invalid(ReasonSignature, "the signature is not by authorization.from %s: sign exactly this authorization with "+
			"its key, in %s", payload.Authorization.From, domain)
	}
	return nil
}

func invalid(reason, format string, args ...any) error {
	return &Invalid{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

func outOfTime(reason, format string, args ...any) error {
	return &Invalid{Reason: reason, Message: fmt.Sprintf(format, args...), OutOfTime: true}
}
