package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/parley-chat/parley/x402"
)

// Refund asks the server to refund amount atomic units that are not charged, or everything if amount is 0. required is
// the 402 response of an operation that takes refunds; Parley's are GET operations. It returns the refunded amount and
// the last response. The amount is 0 if the server refused. The channel stays usable.
func (c *PaymentChannels) Refund(
	ctx context.Context, required *x402.PaymentRequired, amount uint64, send Send,
) (refunded uint64, response *http.Response, err error) {
	call, unlock, err := c.begin(ctx, required)
	if err != nil {
		return 0, nil, err
	}
	defer unlock()
	for try := 1; ; try++ {
		call.before = call.channel
		payment, err := call.signer.SignRefund(ctx, call.channel.Charged, amount)
		if err != nil {
			return 0, nil, err
		}
		payment.Resource = &required.Resource
		header, err := x402.EncodeBatchPayment(payment)
		if err != nil {
			return 0, nil, err
		}
		if response, err = send(ctx, header); err != nil {
			return 0, response, err
		}
		refunded, again, err := call.refunded(ctx, response)
		if err != nil || !again || try == maxChannelTries {
			return refunded, response, err
		}
		discard(response)
	}
}

// refundable returns what to ask refunds with: the 402 for the channel that it offers, and copies for the other channels with the same
// payee and token that have something left.
func (c *PaymentChannels) refundable(required *x402.PaymentRequired) ([]*x402.PaymentRequired, error) {
	offer, _, err := c.choose(required)
	if err != nil {
		return nil, err
	}
	offered, err := x402.NewChannelSigner(c.signer, cmp.Or(c.Salt, zeroSalt), offer)
	if err != nil {
		return nil, err
	}
	stored, err := c.Store.All()
	all := []*x402.PaymentRequired{required}
	for _, channel := range stored {
		config := offered.Config
		config.WithdrawDelay, config.ReceiverAuthorizer = channel.Config.WithdrawDelay, channel.Config.ReceiverAuthorizer
		if channel.unspent() == 0 || channel.Config == offered.Config || channel.Config != config || channel.Network != offer.Network {
			continue
		}
		other, terms := *required, offer
		terms.Extra = maps.Clone(offer.Extra)
		terms.Extra["withdrawDelay"], terms.Extra["receiverAuthorizer"] = config.WithdrawDelay, config.ReceiverAuthorizer
		other.Accepts = []x402.PaymentRequirements{terms}
		all = append(all, &other)
	}
	return all, err
}

// refunded follows the response to a refund. It returns true if the refund should be signed and sent again.
func (c *channelCall) refunded(ctx context.Context, response *http.Response) (amount uint64, again bool, err error) {
	settled, err := x402.DecodeSettleResponse(response.Header.Get(x402.HeaderPaymentResponse))
	if err != nil || !settled.Success {
		again = response.StatusCode == http.StatusPaymentRequired && c.correct(ctx, response)
		return 0, again, c.save()
	}
	amount, err = strconv.ParseUint(settled.Amount, 10, 63)
	if err != nil {
		return 0, false, fmt.Errorf("the refund's amount in PAYMENT-RESPONSE is not a decimal: %w", err)
	}
	// Charged stays: vouchers continue from it after the next deposit.
	c.channel.Balance -= min(amount, c.channel.Balance-min(c.channel.Charged, c.channel.Balance))
	return amount, false, c.save()
}
