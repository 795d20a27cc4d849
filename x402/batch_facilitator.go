package x402

import (
	"context"
	"strconv"
)

// ChannelReceiver names a receiver of channels: the payee and its token on a network. The server's own commands to a
// facilitator need it.
type ChannelReceiver struct {
	// Network is a CAIP-2 chain id.
	Network string
	// Asset is the token contract's address.
	Asset string
	// PayTo is the payee's address.
	PayTo string
}

// requirements returns the payment requirements of a command that no payer pays for.
func (r ChannelReceiver) requirements() PaymentRequirements {
	return PaymentRequirements{Scheme: SchemeBatch, Network: r.Network, Amount: "0", Asset: r.Asset, PayTo: r.PayTo, Extra: map[string]any{}}
}

// ClaimCommand claims vouchers. It is the payload of a server's own payment.
type ClaimCommand struct {
	// Type is "claim".
	Type   string         `json:"type"`
	Claims []VoucherClaim `json:"claims"`
	// ClaimAuthorizerSignature is made by [BatchDomain.SignClaims].
	ClaimAuthorizerSignature string `json:"claimAuthorizerSignature"`
}

// SettleCommand pays out what is claimed. It is the payload of a server's own payment.
type SettleCommand struct {
	// Type is "settle".
	Type     string `json:"type"`
	Receiver string `json:"receiver"`
	Token    string `json:"token"`
}

// RefundCommand is a payer's refund, completed by the server: the contract first claims Claims and then refunds Amount.
type RefundCommand struct {
	// Type is "refund".
	Type          string        `json:"type"`
	ChannelConfig ChannelConfig `json:"channelConfig"`
	Voucher       Voucher       `json:"voucher"`
	// Amount is in atomic units, a decimal. The contract lowers it to what is not claimed. It is not "0".
	Amount string `json:"amount"`
	// RefundNonce is the channel's nonce on the chain, a decimal.
	RefundNonce string `json:"refundNonce"`
	// Claims contains the channel's own claim, or is empty if everything charged is claimed already.
	Claims []VoucherClaim `json:"claims"`
	// RefundAuthorizerSignature is made by [BatchDomain.SignRefund].
	RefundAuthorizerSignature string `json:"refundAuthorizerSignature"`
	// ClaimAuthorizerSignature is made by [BatchDomain.SignClaims]. It is "" if Claims is empty.
	ClaimAuthorizerSignature string `json:"claimAuthorizerSignature,omitzero"`
}

// NewRefundCommand completes a refund that a payer or the server itself asks for. It lacks the signatures. voucher is
// the newest one of the channel, whose amount is claimed unless it is claimed already. amount and channel.RefundNonce
// are in the refund's digest.
func NewRefundCommand(config ChannelConfig, voucher Voucher, amount uint64, channel Channel) RefundCommand {
	command := RefundCommand{
		Type: BatchRefund, ChannelConfig: config, Voucher: voucher,
		Amount: strconv.FormatUint(amount, 10), RefundNonce: strconv.FormatUint(channel.RefundNonce, 10), Claims: []VoucherClaim{},
	}
	if charged, ok := channelAmount(voucher.MaxClaimableAmount); ok && charged > channel.TotalClaimed {
		command.Claims = append(command.Claims, NewClaim(config, voucher))
	}
	return command
}

// VerifyBatch asks the facilitator whether a payment of scheme batch-settlement is valid on the chain. Like
// [Facilitator.Verify] it moves no money and does not retry. [ReportedChannel] reads the channel from the verdict's Extra. For a
// deposit that is the channel before it.
//
// The facilitator rejects a voucher whose amount is claimed already ([ReasonBatchBelowClaimed]); a refund with the same
// voucher is valid then.
func (f *Facilitator) VerifyBatch(ctx context.Context, payment *BatchPayment, requirements PaymentRequirements) (*VerifyResponse, error) {
	body, err := envelope(Version, payment.Raw(), payment, requirements)
	return f.verify(ctx, body, err)
}

// SettleDeposit asks the facilitator to bring a deposit to the chain. requirements are the server's own payment
// requirements. Deadline, outcomes and errors are those of [Facilitator.Settle]. A success names the amount deposited,
// and [ReportedChannel] reads the channel from its Extra.
//
// A rejection can mean that somebody else brought the deposit, because the chain accepts it from anybody. Ask
// [Facilitator.VerifyBatch] with [BatchPayment.AsVoucher] before you treat it as final.
func (f *Facilitator) SettleDeposit(ctx context.Context, payment *BatchPayment, requirements PaymentRequirements) (*SettleResponse, error) {
	body, err := envelope(Version, payment.Raw(), payment, requirements)
	return f.settleRepeatedly(ctx, body, err, requirements.Network, payment.PayerAddress())
}

// SettleClaims asks the facilitator to claim vouchers in one transaction. All channels have the receiverAuthorizer that
// made signature ([BatchDomain.SignClaims]). Official facilitators take up to 100 claims, PayAI 25. One claim that the
// contract rejects reverts all: the verdict is then a rejection with [ReasonBatchClaimSimulation]. Claims can be
// repeated, because the contract skips rows that are claimed already. Deadline, outcomes and errors are those of
// [Facilitator.Settle].
func (f *Facilitator) SettleClaims(ctx context.Context, receiver ChannelReceiver, claims []VoucherClaim,
	signature string) (*SettleResponse, error) {
	return f.command(ctx, receiver.requirements(), ClaimCommand{"claim", claims, signature})
}

// SettleReceiver asks the facilitator to pay out everything that is claimed, in one transfer. A success names the amount.
// If nothing is claimed that is not paid out, the verdict is a rejection with [ReasonBatchNothingToSettle]. Deadline,
// outcomes and errors are those of [Facilitator.Settle].
func (f *Facilitator) SettleReceiver(ctx context.Context, receiver ChannelReceiver) (*SettleResponse, error) {
	return f.command(ctx, receiver.requirements(), SettleCommand{"settle", receiver.PayTo, receiver.Asset})
}

// SettleRefund asks the facilitator to claim and refund in one transaction. requirements are the server's own payment
// requirements for the refund's request; for a refund without a request any of them. A success names the amount that
// moved to the payer, and [ReportedChannel] reads the channel from its Extra. If nothing is left to refund, the verdict
// is a rejection with [ReasonBatchRefundNoBalance]. Deadline, outcomes and errors are those of [Facilitator.Settle].
//
// A refund is valid for one nonce. After an unknown outcome read the channel before you sign another one.
func (f *Facilitator) SettleRefund(ctx context.Context, refund RefundCommand, requirements PaymentRequirements) (*SettleResponse, error) {
	if refund.Claims == nil {
		refund.Claims = []VoucherClaim{} // the member must be present
	}
	return f.command(ctx, requirements, refund)
}

// command sends a payload of the server.
func (f *Facilitator) command(ctx context.Context, requirements PaymentRequirements, payload any) (*SettleResponse, error) {
	body, err := envelope(Version, nil, struct {
		X402Version int                 `json:"x402Version"`
		Accepted    PaymentRequirements `json:"accepted"`
		Payload     any                 `json:"payload"`
	}{Version, requirements, payload}, requirements)
	return f.settleRepeatedly(ctx, body, err, requirements.Network, "")
}
