package devnet

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// stateOf returns a channel in JSON. Only a resource server knows what is charged.
func stateOf(channel x402.Channel, id string) x402.ChannelState {
	state := channel.State(id, 0)
	state.ChargedCumulativeAmount = ""
	return state
}

// callOf returns the call for a request, or nil if there is none.
func (f *Facilitator) callOf(request *batchRequest) *contractCall {
	var c *contractCall
	switch {
	case request.claim != nil:
		c = f.claimCall(request.claim)
	case request.payout != nil:
		c = f.payoutCall(request.payout)
	case request.refund != nil:
		c = f.refundCall(request.refund)
	case request.payment.Payload.Deposit != nil:
		c = f.depositCall(request)
	default:
		return nil
	}
	check := c.check
	c.check = func(now time.Time) *x402.Invalid {
		if invalid := request.checkTerms(); invalid != nil {
			return invalid
		}
		return check(now)
	}
	return c
}

func (f *Facilitator) depositCall(request *batchRequest) *contractCall {
	payload := request.payment.Payload
	return &contractCall{
		name: strings.ToLower(payload.Deposit.Authorization.ERC3009.Signature),
		check: func(now time.Time) *x402.Invalid {
			_, invalid := f.checkBatch(request, now)
			return invalid
		},
		send: func(transaction string, verdict *x402.SettleResponse) error {
			build, err := f.depositOf(payload, transaction)
			if err == nil {
				err = f.ledger.transact(build)
			}
			if err != nil {
				return err
			}
			verdict.Amount, verdict.Extra = payload.Deposit.Amount, f.channelExtra(payload.Voucher.ChannelID)
			return nil
		},
		reverted: x402.ReasonBatchDepositTransaction,
	}
}

func (f *Facilitator) claimCall(command *x402.ClaimCommand) *contractCall {
	build := func(transaction string) func() (record, error) {
		return f.ledger.claiming(command.Claims, command.ClaimAuthorizerSignature, transaction)
	}
	return &contractCall{
		name: strings.ToLower(command.ClaimAuthorizerSignature),
		check: func(time.Time) *x402.Invalid {
			if command.ClaimAuthorizerSignature == "" {
				return refusal(x402.ReasonBatchAuthorizerNotPresent, "claimAuthorizerSignature is missing")
			}
			return refusalOf(x402.ReasonBatchClaimSimulation, f.ledger.simulate(build("")))
		},
		send:     func(transaction string, _ *x402.SettleResponse) error { return f.ledger.transact(build(transaction)) },
		reverted: x402.ReasonBatchClaimTransaction,
	}
}

func (f *Facilitator) payoutCall(command *x402.SettleCommand) *contractCall {
	return &contractCall{
		name: "settle " + strings.ToLower(command.Receiver),
		check: func(time.Time) *x402.Invalid {
			if sums := f.ledger.Received(command.Receiver); !strings.EqualFold(command.Token, token.Asset) || sums.Claimed == sums.Settled {
				return refusal(x402.ReasonBatchNothingToSettle, "nothing is claimed that is not paid out")
			}
			return nil
		},
		send: func(transaction string, verdict *x402.SettleResponse) error {
			amount, err := f.ledger.settleReceiver(command.Receiver, transaction)
			verdict.Amount = strconv.FormatUint(amount, 10)
			return err
		},
		reverted: x402.ReasonBatchSettleTransaction,
	}
}

func (f *Facilitator) refundCall(command *x402.RefundCommand) *contractCall {
	id, _ := channelDomain.ChannelID(command.ChannelConfig) // checkCommand has checked it
	return &contractCall{
		name: strings.ToLower(command.RefundAuthorizerSignature),
		check: func(time.Time) *x402.Invalid {
			channel := f.ledger.Channel(id)
			claimed := channel.TotalClaimed
			for _, row := range command.Claims {
				if rowID, err := channelDomain.ChannelID(row.Voucher.Channel); err == nil && rowID == id {
					claimed = max(claimed, clamp(row.TotalClaimed))
				}
			}
			switch {
			case command.Amount != "0" && claimed == channel.Balance:
				return refusal(x402.ReasonBatchRefundNoBalance, "nothing is left to refund")
			case command.RefundAuthorizerSignature == "":
				return refusal(x402.ReasonBatchAuthorizerMismatch, "refundAuthorizerSignature is missing")
			}
			return refusalOf(x402.ReasonBatchRefundSimulation, f.ledger.simulate(f.ledger.refunding(*command, "")))
		},
		send: func(transaction string, verdict *x402.SettleResponse) error {
			refunded, err := f.ledger.refund(*command, transaction)
			verdict.Payer, verdict.Amount = command.ChannelConfig.Payer, strconv.FormatUint(refunded, 10)
			verdict.Extra = f.channelExtra(id)
			return err
		},
		reverted: x402.ReasonBatchRefundTransaction,
	}
}

// channelExtra returns the member extra of a settlement: the channel after it.
func (f *Facilitator) channelExtra(id string) jsontext.Value {
	state := stateOf(f.ledger.Channel(id), id)
	return x402.BatchExtra{ChannelState: &state}.Encode()
}
