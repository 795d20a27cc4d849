package devnet

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// contractCall is one transaction to a contract, as the facilitator sends it.
type contractCall struct {
	// name identifies a transaction that stays pending: see [Facilitator.PendSettlements].
	name string
	// check returns the reason to reject the call before it is sent, or nil. now is the time when it was sent.
	check func(now time.Time) *x402.Invalid
	// send makes the call and completes the verdict.
	send func(transaction string, verdict *x402.SettleResponse) error
	// reverted is the reason if send returns what a contract returns; "" selects it from transferReasons.
	reverted string
}

// transferReasons are the reasons for what the token contract returns.
var transferReasons = map[error]string{
	errAuthorizationUsed:   x402.ReasonNonceAlreadyUsed,
	errInsufficientBalance: x402.ReasonInsufficientBalance,
}

// settle repeats the checks of verify and makes the call of a request. An error means that the outcome is not known.
func (f *Facilitator) settle(request request) (x402.SettleResponse, error) {
	verdict := x402.SettleResponse{Network: request.network, Payer: request.payer}
	reject := func(invalid *x402.Invalid) (x402.SettleResponse, error) {
		verdict.ErrorReason, verdict.ErrorMessage = invalid.Reason, invalid.Message
		return verdict, nil
	}
	call := request.call
	if call == nil {
		return reject(refusal(x402.ReasonBatchPayloadType, "a voucher alone settles nothing: send claims"))
	}
	if invalid := call.check(f.sentAt(call.name, f.ledger.Now())); invalid != nil {
		return reject(invalid)
	}
	transfer, pending := f.send(call.name, f.ledger.Now())
	if pending {
		verdict.Transaction = transfer.transaction
		return reject(refusal(x402.ReasonSettlementPending, "the transaction was sent and is not confirmed yet; settle again"))
	}
	// The ledger may have changed since the checks. For concurrent calls the ledger's own check counts.
	err := call.send(transfer.transaction, &verdict)
	_, reverts := errors.AsType[Revert](err)
	if err != nil && !reverts && transferReasons[err] == "" {
		return x402.SettleResponse{}, err
	}
	f.forget(call.name)
	if err != nil {
		return reject(refusal(cmp.Or(call.reverted, transferReasons[err]), err.Error()))
	}
	verdict.Success, verdict.Transaction = true, transfer.transaction
	return verdict, nil
}

// transferCall settles a payment of the scheme exact.
func (f *Facilitator) transferCall(payload *x402.PaymentPayload, requirements x402.PaymentRequirements) *contractCall {
	return &contractCall{
		name:  strings.ToLower(payload.Payload.Signature),
		check: func(now time.Time) *x402.Invalid { return f.check(payload, requirements, now) },
		send: func(transaction string, _ *x402.SettleResponse) error {
			a := payload.Payload.Authorization
			amount, err := strconv.ParseUint(a.Value, 10, 64)
			if err != nil {
				return errInsufficientBalance // no balance is that large
			}
			return f.ledger.Transfer(a.From, a.To, amount, a.Nonce, transaction)
		},
	}
}

// sentAt returns the time when a pending transfer was sent, or now if there is none. The time window is checked at this
// time, because a chain checks an authorization when the transfer reaches it.
func (f *Facilitator) sentAt(signature string, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if transfer, ok := f.sent[signature]; ok {
		return transfer.at
	}
	return now
}

// send returns the transfer to execute: the pending one with its transaction hash, or a new one. pending is true if the
// transfer stays pending.
func (f *Facilitator) send(signature string, now time.Time) (transfer broadcast, pending bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	transfer, ok := f.sent[signature]
	if !ok {
		transfer = broadcast{newTransaction(), now}
	}
	if f.pend == 0 {
		return transfer, false
	}
	f.pend--
	f.sent[signature] = transfer
	return transfer, true
}

// forget removes a transfer that is no longer pending.
func (f *Facilitator) forget(signature string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, signature)
}

// newTransaction returns a random transaction hash: 0x and 64 hex digits.
func newTransaction() string {
	var hash [32]byte
	_, _ = rand.Read(hash[:]) // never returns an error: the program ends if there is no randomness
	return "0x" + hex.EncodeToString(hash[:])
}
