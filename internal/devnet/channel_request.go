package devnet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// batchRequest is the request of /verify and /settle in the scheme batch-settlement. Exactly one of payment, claim,
// payout and refund is not nil.
type batchRequest struct {
	accepted, requirements x402.PaymentRequirements

	payment *x402.BatchPayment // by a payer
	claim   *x402.ClaimCommand // the others are by a server
	payout  *x402.SettleCommand
	refund  *x402.RefundCommand
}

// batchPeek is what every payload of the scheme batch-settlement has.
type batchPeek struct {
	Accepted x402.PaymentRequirements `json:"accepted"`
	Payload  jsontext.Value           `json:"payload"`
}

// isBatch reports whether the request is about the scheme batch-settlement.
func (e envelope) isBatch() bool {
	var terms x402.PaymentRequirements
	var payload batchPeek
	_, _ = json.Unmarshal(e.PaymentRequirements, &terms), json.Unmarshal(e.PaymentPayload, &payload)
	return terms.Scheme == x402.SchemeBatch || payload.Accepted.Scheme == x402.SchemeBatch
}

// readBatch decodes a request to /verify, or to /settle, which also takes commands of a server. It is stricter than
// hosted facilitators: an unknown member of a command is an error.
func (e envelope) readBatch(settles bool) (*batchRequest, *x402.FormError) {
	if e.X402Version != x402.Version {
		return nil, malformed(x402.ReasonInvalidVersion, "the scheme batch-settlement exists in x402Version 2 only")
	}
	var read batchRequest
	if json.Unmarshal(e.PaymentRequirements, &read.requirements) != nil {
		return nil, malformedRequirements("are not of version 2")
	}
	var peek batchPeek
	if json.Unmarshal(e.PaymentPayload, &peek) != nil {
		return nil, malformed(x402.ReasonInvalidPayload, "paymentPayload is not of version 2")
	}
	read.accepted = peek.Accepted
	if !settles {
		return read.readPayment(e.PaymentPayload)
	}
	var payload struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(peek.Payload, &payload)
	var err error
	switch payload.Type {
	case "claim":
		err = json.Unmarshal(peek.Payload, &read.claim, json.RejectUnknownMembers(true))
	case "settle":
		err = json.Unmarshal(peek.Payload, &read.payout, json.RejectUnknownMembers(true))
	case x402.BatchRefund:
		err = json.Unmarshal(peek.Payload, &read.refund, json.RejectUnknownMembers(true))
	default:
		return read.readPayment(e.PaymentPayload)
	}
	if err != nil {
		return nil, malformed(x402.ReasonInvalidPayload, fmt.Sprintf("the command %q is malformed", payload.Type))
	}
	return &read, read.checkCommand()
}

// readPayment decodes a payer's payment.
func (r batchRequest) readPayment(raw []byte) (*batchRequest, *x402.FormError) {
	payment, err := x402.ParseBatchPayment(raw)
	if form, ok := errors.AsType[*x402.FormError](err); ok {
		return nil, form
	}
	r.payment, r.accepted = payment, payment.Accepted
	return &r, nil
}

// checkCommand checks the form of a server's command.
func (r *batchRequest) checkCommand() *x402.FormError {
	var claims []x402.VoucherClaim
	switch {
	case r.claim != nil:
		claims = r.claim.Claims
	case r.payout != nil:
		if !addressForm.MatchString(strings.ToLower(r.payout.Receiver)) || !addressForm.MatchString(strings.ToLower(r.payout.Token)) {
			return malformed(x402.ReasonInvalidPayload, "receiver and token must be addresses")
		}
	case r.refund != nil:
		claims = r.refund.Claims
		if claims == nil || !atomicForm.MatchString(r.refund.Amount) || !atomicForm.MatchString(r.refund.RefundNonce) {
			return malformed(x402.ReasonBatchPayloadType, "a refund needs amount, refundNonce and claims, which the server adds")
		}
		if _, err := channelDomain.ChannelID(r.refund.ChannelConfig); err != nil {
			return malformed(x402.ReasonInvalidPayload, err.Error())
		}
	}
	if _, err := channelDomain.ClaimBatchDigest(claims); err != nil {
		return malformed(x402.ReasonInvalidPayload, err.Error())
	}
	return nil
}

// checkTerms returns a reason to reject the request before anything else, or nil.
func (r *batchRequest) checkTerms() *x402.Invalid {
	return checkTerms(r.accepted, r.requirements, x402.SchemeBatch, x402.ReasonBatchScheme, x402.ReasonBatchNetworkMismatch)
}
