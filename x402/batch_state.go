package x402

import (
	"errors"
	"maps"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Channel is the state of a channel on the chain. Amounts are in atomic units. The zero value is the state of a channel
// that nobody has deposited into.
type Channel struct {
	// Balance is gross: deposits minus refunds and withdrawals. Claims do not lower it.
	Balance uint64
	// TotalClaimed is what the receiver has claimed since the channel exists. It is at most Balance.
	TotalClaimed uint64
	// WithdrawAmount is what the payer is withdrawing. [ChannelState] does not contain it.
	WithdrawAmount uint64
	// WithdrawRequestedAt is when the payer initiated a withdrawal, in Unix seconds, or 0. The payer can finalize it
	// withdrawDelay seconds later. Vouchers that are not claimed by then can be worthless.
	WithdrawRequestedAt int64
	// RefundNonce is the number of refunds. A signed refund is valid for one nonce.
	RefundNonce uint64
}

// ChannelState is a channel in JSON: in the extra member of a facilitator's responses, of PAYMENT-RESPONSE, and of a
// corrective 402.
type ChannelState struct {
	// ChannelID is 0x and 64 hex digits.
	ChannelID string `json:"channelId"`
	// Balance and TotalClaimed are decimals in atomic units, as in [Channel].
	Balance      string `json:"balance"`
	TotalClaimed string `json:"totalClaimed"`
	// WithdrawRequestedAt is a number of Unix seconds, or 0.
	WithdrawRequestedAt int64 `json:"withdrawRequestedAt"`
	// RefundNonce is a decimal.
	RefundNonce string `json:"refundNonce"`
	// ChargedCumulativeAmount is what the server charged since the channel exists, a decimal in atomic units. Only a
	// resource server knows it; facilitators leave it out.
	ChargedCumulativeAmount string `json:"chargedCumulativeAmount,omitzero"`
}

// VoucherState is the newest voucher that a server has of a channel.
type VoucherState struct {
	// SignedMaxClaimable is the voucher's cumulative amount, a decimal in atomic units.
	SignedMaxClaimable string `json:"signedMaxClaimable,omitzero"`
	// Signature is the payer's. Send it only to who proved that the channel is theirs: the receiver can claim with it.
	Signature string `json:"signature,omitzero"`
}

// State returns the channel in JSON, with what the server charged.
func (c Channel) State(channelID string, charged uint64) ChannelState {
	state := c.state(channelID)
	state.ChargedCumulativeAmount = strconv.FormatUint(charged, 10)
	return state
}

func (c Channel) state(channelID string) ChannelState {
	return ChannelState{
		ChannelID: channelID, Balance: strconv.FormatUint(c.Balance, 10), TotalClaimed: strconv.FormatUint(c.TotalClaimed, 10),
		WithdrawRequestedAt: c.WithdrawRequestedAt, RefundNonce: strconv.FormatUint(c.RefundNonce, 10),
	}
}

// Channel returns the numbers of the state. It returns an error if one is malformed or above [MaxChannelAmount].
func (s ChannelState) Channel() (Channel, error) {
	balance, okBalance := channelAmount(s.Balance)
	claimed, okClaimed := channelAmount(s.TotalClaimed)
	nonce, okNonce := channelAmount(s.RefundNonce)
	if !okBalance || !okClaimed || !okNonce || s.WithdrawRequestedAt < 0 || claimed > balance {
		return Channel{}, errors.New("the state of the channel has malformed or impossible numbers")
	}
	return Channel{Balance: balance, TotalClaimed: claimed, WithdrawRequestedAt: s.WithdrawRequestedAt, RefundNonce: nonce}, nil
}

// Charged returns ChargedCumulativeAmount. It returns false if it is missing, malformed or above [MaxChannelAmount].
func (s ChannelState) Charged() (uint64, bool) { return channelAmount(s.ChargedCumulativeAmount) }

// BatchExtra is the member extra of a [SettleResponse] or [VerifyResponse] of scheme batch-settlement.
type BatchExtra struct {
	// ChargedAmount is what this request was charged, a decimal in atomic units. "0" means that a deposit arrived but
	// the request was refused. A refund has none.
	ChargedAmount string `json:"chargedAmount,omitzero"`
	// ChannelState is the channel after the settlement.
	ChannelState *ChannelState `json:"channelState,omitzero"`
}

// Encode returns the value of [SettleResponse.Extra].
func (e BatchExtra) Encode() jsontext.Value {
	raw, err := json.Marshal(e)
	if err != nil {
		return nil // a string that is not UTF-8; all of ours are digits
	}
	return raw
}

// DecodeBatchExtra decodes the member extra of a facilitator's or a server's response. A facilitator's /verify returns
// the members of the channel directly in extra; DecodeBatchExtra puts them into ChannelState. It returns an error if
// there is no channel in extra, or a member has a wrong type.
func DecodeBatchExtra(extra jsontext.Value) (BatchExtra, error) {
	var wire struct {
		BatchExtra
		ChannelID           string `json:"channelId"`
		Balance             string `json:"balance"`
		TotalClaimed        string `json:"totalClaimed"`
		WithdrawRequestedAt int64  `json:"withdrawRequestedAt"`
		RefundNonce         string `json:"refundNonce"`
	}
	if len(extra) == 0 || json.Unmarshal(extra, &wire) != nil {
		return BatchExtra{}, errors.New("extra does not describe a channel")
	}
	if wire.ChannelState == nil {
		wire.ChannelState = &ChannelState{
			ChannelID: wire.ChannelID, Balance: wire.Balance, TotalClaimed: wire.TotalClaimed,
			WithdrawRequestedAt: wire.WithdrawRequestedAt, RefundNonce: wire.RefundNonce,
		}
	}
	if !isHex(wire.ChannelState.ChannelID, 32, 32) {
		return BatchExtra{}, errors.New("extra has no channelId")
	}
	return wire.BatchExtra, nil
}

// ReportedChannel returns the channel in a facilitator's response. It returns an error if the response has none, or that
// of another channel than channelID.
func ReportedChannel(extra jsontext.Value, channelID string) (Channel, error) {
	decoded, err := DecodeBatchExtra(extra)
	if err != nil {
		return Channel{}, err
	}
	if !strings.EqualFold(decoded.ChannelState.ChannelID, channelID) {
		return Channel{}, errors.New("the response is about another channel")
	}
	return decoded.ChannelState.Channel()
}

// Corrective returns the offers of a corrective 402: copies of the server's offers, in which those of scheme
// batch-settlement contain the state of the payer's channel, and its newest voucher if there is one. The official
// clients then sign a voucher for the charged amount plus the price, and try once more. They do so only if the 402's
// error is [ReasonBatchCumulativeMismatch] or [ReasonBatchBelowClaimed].
func Corrective(offers []PaymentRequirements, state ChannelState, newest *VoucherState) []PaymentRequirements {
	corrected := make([]PaymentRequirements, len(offers))
	for i, offer := range offers {
		if offer.Scheme == SchemeBatch {
			offer.Extra = maps.Clone(offer.Extra)
			offer.Extra["channelState"] = state
			if newest != nil {
				offer.Extra["voucherState"] = *newest
			}
		}
		corrected[i] = offer
	}
	return corrected
}

// Correction returns the channel state and the voucher state in an offer of a corrective 402, as a client received it.
// It returns false if the offer has no channel state or a member has a wrong type. The voucher is nil if there is none.
func Correction(offer PaymentRequirements) (ChannelState, *VoucherState, bool) {
	var members struct {
		ChannelState *ChannelState `json:"channelState"`
		VoucherState *VoucherState `json:"voucherState"`
	}
	raw, err := json.Marshal(offer.Extra)
	if err != nil || json.Unmarshal(raw, &members) != nil || members.ChannelState == nil {
		return ChannelState{}, nil, false
	}
	return *members.ChannelState, members.VoucherState, true
}
