package devnet

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

func (f *Facilitator) serveVerifyBatch(w http.ResponseWriter, body []byte) {
	request, form := readBatch(body, false)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.VerifyResponse{InvalidReason: form.Reason, InvalidMessage: form.Message})
		return
	}
	verdict := x402.VerifyResponse{Payer: request.payment.Payload.ChannelConfig.Payer}
	channel, invalid := f.checkBatch(request, f.ledger.Now())
	if invalid != nil {
		verdict.InvalidReason, verdict.InvalidMessage = invalid.Reason, invalid.Message
	} else {
		verdict.IsValid, verdict.Extra = true, encodeState(stateOf(channel, request.payment.Payload.Voucher.ChannelID))
	}
	respond(w, http.StatusOK, verdict)
}

// stateOf returns a channel in JSON. Only a resource server knows what is charged.
func stateOf(channel x402.Channel, id string) x402.ChannelState {
	state := channel.State(id, 0)
	state.ChargedCumulativeAmount = ""
	return state
}

func encodeState(state x402.ChannelState) jsontext.Value {
	raw, err := json.Marshal(state)
	if err != nil {
		return nil // an id that is not UTF-8; ids are hex digits
	}
	return raw
}

func (f *Facilitator) serveSettleBatch(w http.ResponseWriter, body []byte) {
	request, form := readBatch(body, true)
	if form != nil {
		respond(w, http.StatusBadRequest, x402.SettleResponse{ErrorReason: form.Reason, ErrorMessage: form.Message, Network: NetworkID})
		return
	}
	verdict, err := f.settleBatch(request)
	if err != nil {
		reject(w, http.StatusInternalServerError, err.Error())
		return
	}
	verdict.Network = NetworkID
	respond(w, http.StatusOK, verdict)
}

// batchCall is one transaction to the contract, as the facilitator sends it.
type batchCall struct {
	// name identifies a transaction that stays pending: see [Facilitator.PendSettlements].
	name string
	// check returns the reason to reject the call before it is sent, or nil. now is the time when it was sent.
	check func(now time.Time) *x402.Invalid
	// send makes the call and completes the verdict.
	send func(transaction string, verdict *x402.SettleResponse) error
	// reverted is the reason if send returns what the contract returns.
	reverted string
}

// settleBatch checks a request and makes its call. An error means that the outcome is not known.
func (f *Facilitator) settleBatch(request *batchRequest) (x402.SettleResponse, error) {
	var verdict x402.SettleResponse
	reject := func(invalid *x402.Invalid) (x402.SettleResponse, error) {
		verdict.ErrorReason, verdict.ErrorMessage = invalid.Reason, invalid.Message
		return verdict, nil
	}
	call := f.callOf(request)
	if call == nil {
		return reject(&x402.Invalid{Reason: x402.ReasonBatchPayloadType, Message: "a voucher alone settles nothing: send claims"})
	}
	if request.payment != nil {
		verdict.Payer = request.payment.Payload.ChannelConfig.Payer
	}
	if invalid := request.checkTerms(); invalid != nil {
		return reject(invalid)
	}
	if invalid := call.check(f.sentAt(call.name, f.ledger.Now())); invalid != nil {
		return reject(invalid)
	}
	transfer, pending := f.send(call.name, f.ledger.Now())
	if pending {
		verdict.Transaction = transfer.transaction
		return reject(&x402.Invalid{Reason: x402.ReasonSettlementPending, Message: "the transaction was sent and is not confirmed yet; settle again"})
	}
	err := call.send(transfer.transaction, &verdict)
	if _, reverts := errors.AsType[Revert](err); reverts || errors.Is(err, errAuthorizationUsed) || errors.Is(err, errInsufficientBalance) {
		f.forget(call.name)
		return reject(&x402.Invalid{Reason: call.reverted, Message: err.Error()})
	}
	if err != nil {
		return x402.SettleResponse{}, err
	}
	f.forget(call.name)
	verdict.Success, verdict.Transaction = true, transfer.transaction
	return verdict, nil
}

// callOf returns the call for a request, or nil if there is none.
func (f *Facilitator) callOf(request *batchRequest) *batchCall {
	switch {
	case request.claim != nil:
		return f.claimCall(request.claim)
	case request.payout != nil:
		return f.payoutCall(request.payout)
	case request.refund != nil:
		return f.refundCall(request.refund)
	case request.payment.Payload.Deposit != nil:
		return f.depositCall(request)
	}
	return nil
}

func (f *Facilitator) depositCall(request *batchRequest) *batchCall {
	payload := request.payment.Payload
	return &batchCall{
		name: strings.ToLower(payload.Deposit.Authorization.ERC3009.Signature),
		check: func(now time.Time) *x402.Invalid {
			_, invalid := f.checkBatch(request, now)
			return invalid
		},
		send: func(transaction string, verdict *x402.SettleResponse) error {
			build, err := f.depositOf(payload, transaction)
			if err != nil {
				return err
			}
			if err := f.ledger.transact(build); err != nil {
				return err
			}
			verdict.Amount, verdict.Extra = payload.Deposit.Amount, f.channelExtra(payload.Voucher.ChannelID)
			return nil
		},
		reverted: x402.ReasonBatchDepositTransaction,
	}
}

func (f *Facilitator) claimCall(command *x402.ClaimCommand) *batchCall {
	build := func(transaction string) func() (record, error) {
		return f.ledger.claiming(command.Claims, command.ClaimAuthorizerSignature, transaction)
	}
	return &batchCall{
		name: strings.ToLower(command.ClaimAuthorizerSignature),
		check: func(time.Time) *x402.Invalid {
			if command.ClaimAuthorizerSignature == "" {
				return &x402.Invalid{Reason: x402.ReasonBatchAuthorizerNotPresent, Message: "claimAuthorizerSignature is missing"}
			}
			return simulated(f.ledger.simulate(build("")), x402.ReasonBatchClaimSimulation)
		},
		send:     func(transaction string, _ *x402.SettleResponse) error { return f.ledger.transact(build(transaction)) },
		reverted: x402.ReasonBatchClaimTransaction,
	}
}

func (f *Facilitator) payoutCall(command *x402.SettleCommand) *batchCall {
	return &batchCall{
		name: "settle " + strings.ToLower(command.Receiver),
		check: func(time.Time) *x402.Invalid {
			if sums := f.ledger.Received(command.Receiver); !strings.EqualFold(command.Token, token.Asset) || sums.Claimed == sums.Settled {
				return &x402.Invalid{Reason: x402.ReasonBatchNothingToSettle, Message: "nothing is claimed that is not paid out"}
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

func (f *Facilitator) refundCall(command *x402.RefundCommand) *batchCall {
	id, _ := channelDomain.ChannelID(command.ChannelConfig) // checkCommand has checked it
	return &batchCall{
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
				return &x402.Invalid{Reason: x402.ReasonBatchRefundNoBalance, Message: "nothing is left to refund"}
			case command.RefundAuthorizerSignature == "":
				return &x402.Invalid{Reason: x402.ReasonBatchAuthorizerMismatch, Message: "refundAuthorizerSignature is missing"}
			}
			return simulated(f.ledger.simulate(f.ledger.refunding(*command, "")), x402.ReasonBatchRefundSimulation)
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

// simulated returns the reason to reject a call whose simulation returned err, or nil.
func simulated(err error, reason string) *x402.Invalid {
	if err == nil {
		return nil
	}
	return &x402.Invalid{Reason: reason, Message: err.Error()}
}

// channelExtra returns the member extra of a settlement: the channel after it.
func (f *Facilitator) channelExtra(id string) jsontext.Value {
	state := stateOf(f.ledger.Channel(id), id)
	return x402.BatchExtra{ChannelState: &state}.Encode()
}
