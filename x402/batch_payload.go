package x402

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// wireBatchPayment is BatchPayment with the unknown members of those objects that determine the payment.
type wireBatchPayment struct {
	X402Version int                       `json:"x402Version"`
	Resource    *ResourceInfo             `json:"resource"`
	Accepted    wireRequirements          `json:"accepted"`
	Payload     wireBatchPayload          `json:"payload"`
	Extensions  map[string]jsontext.Value `json:"extensions"`
	Unknown     unknownMembers            `json:",embed"`
}

type wireBatchPayload struct {
	Type          string `json:"type"`
	ChannelConfig struct {
		ChannelConfig
		Unknown unknownMembers `json:",embed"`
	} `json:"channelConfig"`
	Voucher struct {
		Voucher
		Unknown unknownMembers `json:",embed"`
	} `json:"voucher"`
	Deposit *wireDeposit   `json:"deposit"`
	Amount  *string        `json:"amount"`
	Unknown unknownMembers `json:",embed"`
}

type wireDeposit struct {
	Amount        string `json:"amount"`
	Authorization struct {
		ERC3009 *struct {
			ERC3009Deposit
			Unknown unknownMembers `json:",embed"`
		} `json:"erc3009Authorization"`
		Unknown unknownMembers `json:",embed"`
	} `json:"authorization"`
	Unknown unknownMembers `json:",embed"`
}

// Payment is a received payment of any scheme: a [*PaymentPayload] or a [*BatchPayment].
type Payment interface {
	// Version is the x402 version.
	Version() int
	// Raw is the JSON exactly as it was received. Do not change it and do not log it.
	Raw() []byte
	// Offer is the payer's copy of the payment requirements that it accepted. A payment of version 1 names only scheme and network.
	Offer() PaymentRequirements
	// Extension is the payer's copy of an extension, or nil.
	Extension(name string) jsontext.Value
	// PayerAddress is the address that pays, in any case of letters.
	PayerAddress() string
	// SignatureHex is the signature of the authorization; of a voucher without a deposit its own.
	SignatureHex() string
}

// DecodePayment decodes the value of a PAYMENT-SIGNATURE header of either scheme. It is as strict as [ParsePaymentPayload] and
// [ParseBatchPayment]. The error is always a [*FormError].
func DecodePayment(header string) (Payment, error) {
	raw, err := decodeBase64(HeaderPaymentSignature, header)
	if err != nil {
		return nil, err
	}
	return ParsePayment(raw)
}

// ParsePayment decodes the JSON of a payment of version 2, as [DecodePayment].
func ParsePayment(raw []byte) (Payment, error) {
	if bytes.Contains(raw, []byte(SchemeBatch)) { // spares payments of scheme exact the second decoding
		payment, err := ParseBatchPayment(raw)
		switch {
		case err == nil:
			return payment, nil
		case isBatch(raw):
			return nil, err
		}
	}
	payload, err := ParsePaymentPayload(raw)
	if err != nil {
		return nil, err
	}
	return payload, nil
}

// isBatch reports whether the JSON of a payment names the scheme batch-settlement.
func isBatch(raw []byte) bool {
	var peek struct {
		Accepted struct {
			Scheme string `json:"scheme"`
		} `json:"accepted"`
	}
	return json.Unmarshal(raw, &peek) == nil && peek.Accepted.Scheme == SchemeBatch
}

// EncodeBatchPayment returns the value of a PAYMENT-SIGNATURE header, encoded from the payment's fields. It returns an
// error only if a string is not valid UTF-8 or an extension is not valid JSON.
func EncodeBatchPayment(payment *BatchPayment) (string, error) {
	return encodeHeader(HeaderPaymentSignature, payment)
}

// ParseBatchPayment decodes the JSON of a payment of version 2, scheme batch-settlement, and checks its form: required
// members, types, and the format of addresses, decimals, ids and signatures. The voucher's signature must be one that
// the contract accepts: 65 bytes, v 27 or 28, low s. ParseBatchPayment does not check that the payment is valid: see
// [MatchBatch] and [BatchChecker].
//
// Like [ParsePaymentPayload] it rejects duplicate names, invalid UTF-8, trailing data, and names that differ from a name
// of the protocol only in letter case. It rejects deposits by Permit2, and members that only a server sends. The result
// keeps raw for [BatchPayment.Raw], so the caller must not change raw afterwards. The error is always a [*FormError].
func ParseBatchPayment(raw []byte) (*BatchPayment, error) {
	var wire wireBatchPayment
	if err := json.Unmarshal(raw, &wire); err != nil {
		return nil, batchJSONError(err)
	}
	if wire.X402Version != Version {
		return nil, &FormError{ReasonInvalidVersion, fmt.Sprintf("the payment payload has x402Version %d, but the scheme %s exists in "+
			"version 2 only",
			wire.X402Version, SchemeBatch)}
	}
	if wire.Accepted.Scheme != SchemeBatch {
		return nil, &FormError{ReasonBatchScheme, fmt.Sprintf("accepted.scheme is not %q", SchemeBatch)}
	}
	if err := rejectLookalikes(wire.members()); err != nil {
		return nil, err
	}
	if err := wire.Accepted.check(); err != nil {
		return nil, err
	}
	payload, err := wire.Payload.batchPayload()
	if err != nil {
		return nil, err
	}
	return &BatchPayment{
		X402Version: wire.X402Version, Resource: wire.Resource, Accepted: wire.Accepted.PaymentRequirements,
		Payload: payload, Extensions: wire.Extensions, raw: raw,
	}, nil
}

// members lists the objects for [rejectLookalikes].
func (w *wireBatchPayment) members() []members {
	all := []members{
		membersV2(w.Unknown),
		w.Accepted.members(),
		{[]string{"type", "channelConfig", "voucher", "deposit", "amount"}, w.Payload.Unknown},
		{
			[]string{"payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token", "withdrawDelay", "salt"},
			w.Payload.ChannelConfig.Unknown,
		},
		{[]string{"channelId", "maxClaimableAmount", "signature"}, w.Payload.Voucher.Unknown},
	}
	if deposit := w.Payload.Deposit; deposit != nil {
		all = append(all, members{[]string{"amount", "authorization"}, deposit.Unknown},
			members{[]string{"erc3009Authorization"}, deposit.Authorization.Unknown})
		if signed := deposit.Authorization.ERC3009; signed != nil {
			all = append(all, members{[]string{"validAfter", "validBefore", "salt", "signature"}, signed.Unknown})
		}
	}
	return all
}
