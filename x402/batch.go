package x402

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// SchemeBatch is the scheme of payment channels. A payer deposits once on the chain and then signs one voucher per
// request. The receiver claims the newest voucher of many channels in one transaction (x402 v2, scheme batch-settlement
// on EVM).
const SchemeBatch = "batch-settlement"

// The contracts of the scheme. They have the same addresses on all chains.
const (
	// BatchSettlementContract holds the deposits of all channels.
	BatchSettlementContract = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003"
	// DepositCollectorContract is the payee of the EIP-3009 authorization of a deposit. It forwards the money to
	// [BatchSettlementContract].
	DepositCollectorContract = "0x4020806089470a89826cB9fB1f4059150b550004"
)

const (
	// MinWithdrawDelay and MaxWithdrawDelay are the contract's limits, in seconds: 15 minutes and 30 days.
	MinWithdrawDelay = 900
	MaxWithdrawDelay = 2_592_000
	// MaxChannelAmount is the largest amount of a channel that this package accepts, in atomic units. The contract
	// allows 2^128-1, but ledgers store 64-bit integers, and no supported token has more units.
	MaxChannelAmount = math.MaxInt64
)

// The types of payments of the scheme. The server sends the facilitator further types: see [Facilitator.SettleClaims],
// [Facilitator.SettleReceiver] and [Facilitator.SettleRefund].
const (
	// BatchDeposit pays with a voucher and brings a deposit that opens the channel or adds to it.
	BatchDeposit = "deposit"
	// BatchVoucher pays with a voucher.
	BatchVoucher = "voucher"
	// BatchRefund asks for the unspent deposit. Its voucher repeats what was charged.
	BatchRefund = "refund"
)

// zeroAddress stands for "none" in a [ChannelConfig].
const zeroAddress = "0x0000000000000000000000000000000000000000"

// ChannelConfig defines a channel. Its hash is the channel's id, so none of its members ever changes.
type ChannelConfig struct {
	// Payer is the address that deposits and gets refunds.
	Payer string `json:"payer"`
	// PayerAuthorizer is the address whose key signs the vouchers. The zero address means that Payer is a smart wallet
	// that verifies vouchers itself (ERC-1271). [BatchChecker] rejects the zero address.
	PayerAuthorizer string `json:"payerAuthorizer"`
	// Receiver is the payee's address.
	Receiver string `json:"receiver"`
	// ReceiverAuthorizer is the address whose key signs claims and refunds for the receiver.
	ReceiverAuthorizer string `json:"receiverAuthorizer"`
	// Token is the token contract's address.
	Token string `json:"token"`
	// WithdrawDelay is how long a withdrawal by the payer takes, in seconds, from [MinWithdrawDelay] to
	// [MaxWithdrawDelay]. It is a number on the wire.
	WithdrawDelay uint64 `json:"withdrawDelay"`
	// Salt is 0x and 64 hex digits. Channels that differ only in Salt are independent.
	Salt string `json:"salt"`
}

// Voucher allows the receiver to claim a cumulative amount from a channel.
type Voucher struct {
	// ChannelID is 0x and 64 hex digits.
	ChannelID string `json:"channelId"`
	// MaxClaimableAmount is all that the receiver may claim since the channel exists, in atomic units, a decimal below
	// 2^128.
	MaxClaimableAmount string `json:"maxClaimableAmount"`
	// Signature is 0x and 130 hex digits, by the key of PayerAuthorizer.
	Signature string `json:"signature"`
}

// ChannelDeposit adds money to a channel.
type ChannelDeposit struct {
	// Amount is in atomic units, a decimal below 2^128.
	Amount string `json:"amount"`
	// Authorization allows the transfer.
	Authorization DepositAuthorization `json:"authorization"`
}

// DepositAuthorization contains the signature that moves a deposit. This package supports EIP-3009 only.
type DepositAuthorization struct {
	ERC3009 ERC3009Deposit `json:"erc3009Authorization"`
}

// ERC3009Deposit is the signed message ReceiveWithAuthorization of EIP-3009 from the payer to
// [DepositCollectorContract]. Its nonce is [DepositNonce], which binds the deposit to the channel.
type ERC3009Deposit struct {
	// ValidAfter and ValidBefore are in Unix seconds, unsigned decimals.
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	// Salt is 0x and 64 hex digits. The payer chooses it at random for each deposit.
	Salt string `json:"salt"`
	// Signature is 0x and hex digits: 65 bytes r, s, v from a private key, or more from a smart wallet.
	Signature string `json:"signature"`
}

// BatchPayload is the part of a payment that the scheme defines.
type BatchPayload struct {
	// Type is [BatchDeposit], [BatchVoucher] or [BatchRefund].
	Type string `json:"type"`
	// ChannelConfig is the channel that pays.
	ChannelConfig ChannelConfig `json:"channelConfig"`
	// Voucher pays the request. In a refund it repeats what was charged.
	Voucher Voucher `json:"voucher"`
	// Deposit is not nil exactly if Type is [BatchDeposit].
	Deposit *ChannelDeposit `json:"deposit,omitzero"`
	// Amount is what a refund asks for, in atomic units. "" asks for everything that is not charged.
	Amount string `json:"amount,omitzero"`
}

// BatchPayment is a payment of the scheme batch-settlement. Decode received payments only with [ParseBatchPayment] or
// [DecodePayment]. Do not unmarshal JSON into this type: that skips their checks.
type BatchPayment struct {
	// X402Version is 2. Version 1 does not have the scheme.
	X402Version int `json:"x402Version"`
	// Resource echoes [PaymentRequired.Resource]. It may be missing.
	Resource *ResourceInfo `json:"resource,omitzero"`
	// Accepted is the payer's copy of the payment requirements. Use it only to select one of the server's own payment
	// requirements, with [MatchBatch].
	Accepted PaymentRequirements `json:"accepted"`
	// Payload is the voucher, with a deposit or a refund.
	Payload BatchPayload `json:"payload"`
	// Extensions echoes [PaymentRequired.Extensions] with the payer's additions. It may be missing.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`

	raw []byte
}

// Raw returns the payment's JSON exactly as it was received. It is nil for a payment that was created in this process.
// The bytes are shared: do not change them and do not log them.
func (p *BatchPayment) Raw() []byte { return p.raw }

// Version implements [Payment].
func (p *BatchPayment) Version() int { return p.X402Version }

// Offer implements [Payment].
func (p *BatchPayment) Offer() PaymentRequirements { return p.Accepted }

// Extension implements [Payment].
func (p *BatchPayment) Extension(name string) jsontext.Value { return p.Extensions[name] }

// PayerAddress implements [Payment].
func (p *BatchPayment) PayerAddress() string { return p.Payload.ChannelConfig.Payer }

// SignatureHex implements [Payment].
func (p *BatchPayment) SignatureHex() string {
	if deposit := p.Payload.Deposit; deposit != nil {
		return deposit.Authorization.ERC3009.Signature
	}
	return p.Payload.Voucher.Signature
}

// AsVoucher returns the payment without its deposit, as a payment of type [BatchVoucher]. After a deposit whose outcome
// is not known, [Facilitator.VerifyBatch] of this payment reports whether the deposit arrived: the channel's balance is
// then at least the voucher's amount.
func (p *BatchPayment) AsVoucher() *BatchPayment {
	voucher := *p
	voucher.raw = nil
	voucher.Payload.Type, voucher.Payload.Deposit, voucher.Payload.Amount = BatchVoucher, nil, ""
	return &voucher
}

// ChannelTerms are the receiver's conditions for channels. They are in [PaymentRequirements.Extra] of an offer.
type ChannelTerms struct {
	// ReceiverAuthorizer is the address of the receiver's signing key. It is not the zero address.
	ReceiverAuthorizer string
	// WithdrawDelay is in seconds, from [MinWithdrawDelay] to [MaxWithdrawDelay].
	WithdrawDelay uint64
	// MinDeposit is the suggested deposit in atomic units. Official clients from npm 2.26.0 and PyPI 2.25.0 deposit
	// this amount. It is a hint: smaller deposits are valid. Zero means no suggestion.
	MinDeposit uint64
}

// LeastDeposit is the least deposit that a Parley server takes, in atomic units: a tenth of the suggested one. To bring a deposit to the
// chain costs the operator a transaction.
func (t ChannelTerms) LeastDeposit() uint64 { return t.MinDeposit / 10 }

// BatchRequirements returns payment requirements of scheme batch-settlement: at most amount atomic units of the
// network's token for one request, paid to payTo from a channel with these terms.
func (n Network) BatchRequirements(amount uint64, payTo string, maxTimeoutSeconds int, terms ChannelTerms) PaymentRequirements {
	offer := n.Requirements(amount, payTo, maxTimeoutSeconds)
	offer.Scheme = SchemeBatch
	offer.Extra["receiverAuthorizer"] = terms.ReceiverAuthorizer
	offer.Extra["withdrawDelay"] = terms.WithdrawDelay // a number: clients take 900 for anything else
	if terms.MinDeposit > 0 {
		offer.Extra["minDeposit"] = strconv.FormatUint(max(terms.MinDeposit, amount), 10)
	}
	return offer
}

// TermsOf returns the terms in payment requirements of scheme batch-settlement. It returns an error if they are
// malformed or demand a transfer method other than EIP-3009. A malformed minDeposit counts as none, because it is a
// hint.
func TermsOf(offer PaymentRequirements) (ChannelTerms, error) {
	terms := ChannelTerms{}
	terms.ReceiverAuthorizer, _ = offer.Extra["receiverAuthorizer"].(string)
	var whole bool
	terms.WithdrawDelay, whole = wholeNumber(offer.Extra["withdrawDelay"])
	method, named := offer.Extra["assetTransferMethod"]
	switch {
	case offer.Scheme != SchemeBatch:
		return ChannelTerms{}, fmt.Errorf("the offer's scheme is %q, want %q", offer.Scheme, SchemeBatch)
	case named && method != "eip3009":
		return ChannelTerms{}, fmt.Errorf("the offer wants another transfer method than EIP-3009")
	case !isAddress(terms.ReceiverAuthorizer) || terms.ReceiverAuthorizer == zeroAddress:
		return ChannelTerms{}, fmt.Errorf("the offer's extra.receiverAuthorizer is not an address")
	case !whole || terms.WithdrawDelay < MinWithdrawDelay || terms.WithdrawDelay > MaxWithdrawDelay:
		return ChannelTerms{}, fmt.Errorf("the offer's extra.withdrawDelay is not a number from %d to %d", MinWithdrawDelay, MaxWithdrawDelay)
	}
	if hint, ok := offer.Extra["minDeposit"].(string); ok && isDecimal(hint) {
		if amount, err := strconv.ParseUint(hint, 10, 63); err == nil {
			terms.MinDeposit = amount
		}
	}
	return terms, nil
}

// wholeNumber converts a member of extra to a number. A number decoded from JSON is a float64.
func wholeNumber(member any) (uint64, bool) {
	switch number := member.(type) {
	case uint64:
		return number, true
	case int:
		return uint64(number), number >= 0 //nolint:gosec // not negative
	case float64:
		return uint64(number), number >= 0 && number < 1<<53 && number == math.Trunc(number)
	}
	return 0, false
}

// MatchBatch returns the payment requirements among offers that the payer accepted, or false if there are none. It
// compares scheme, network and amount as strings, asset, payee and receiverAuthorizer as addresses, and withdrawDelay
// as a number. It ignores all other members of extra: clients may echo the channelState and voucherState of a
// corrective 402, and may drop members that they do not know. After MatchBatch use the returned payment requirements,
// never the payer's copy.
func MatchBatch(offers []PaymentRequirements, payment *BatchPayment) (PaymentRequirements, bool) {
	i := slices.IndexFunc(offers, func(offer PaymentRequirements) bool {
		return offer.Scheme == SchemeBatch && Difference(offer, payment.Accepted, Version) == ""
	})
	if i < 0 {
		return PaymentRequirements{}, false
	}
	return offers[i], true
}

// termsDifference is Difference for the terms in extra.
func termsDifference(offer, accepted PaymentRequirements) string {
	ours, errOurs := TermsOf(offer)
	theirs, errTheirs := TermsOf(accepted)
	authorizer, _ := accepted.Extra["receiverAuthorizer"].(string)
	switch {
	case !strings.EqualFold(ours.ReceiverAuthorizer, authorizer):
		return "extra.receiverAuthorizer"
	case errOurs != nil || errTheirs != nil || ours.WithdrawDelay != theirs.WithdrawDelay:
		return "extra.withdrawDelay"
	}
	return ""
}
