package devnet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/x402"
)

// settle repeats the checks of verify and moves the money. An error means that the outcome is not known.
func (f *Facilitator) settle(payload *x402.PaymentPayload, requirements x402.PaymentRequirements, now time.Time) (x402.SettleResponse, error) {
	a := payload.Payload.Authorization
	verdict := x402.SettleResponse{Network: NetworkID, Payer: a.From}
	signature := strings.ToLower(payload.Payload.Signature)
	if invalid := f.check(payload, requirements, f.sentAt(signature, now)); invalid != nil {
		verdict.ErrorReason, verdict.ErrorMessage = invalid.Reason, invalid.Message
		return verdict, nil
	}
	transfer, pending := f.send(signature, now)
	if pending {
		verdict.Transaction = transfer.transaction
		verdict.ErrorReason = x402.ReasonSettlementPending
		verdict.ErrorMessage = "the transfer was sent and is not confirmed yet; settle the same payment again"
		return verdict, nil
	}
	// The ledger may have changed since the checks. For concurrent payments the ledger's own check counts.
	invalid, err := f.mine(a, transfer.transaction)
	if err != nil {
		return x402.SettleResponse{}, err
	}
	f.forget(signature)
	if invalid != nil {
		verdict.ErrorReason, verdict.ErrorMessage = invalid.Reason, invalid.Message
		return verdict, nil
	}
	verdict.Success = true
	verdict.Transaction = transfer.transaction
	return verdict, nil
}

// mine moves the money, or returns the reason why the token contract rejects the transfer. An error means that the
// outcome is not known.
func (f *Facilitator) mine(a x402.Authorization, transaction string) (*x402.Invalid, error) {
	amount, err := strconv.ParseUint(a.Value, 10, 64)
	if err != nil {
		return invalidBalance(), nil // no balance is that large
	}
	switch err := f.ledger.Transfer(a.From, a.To, amount, a.Nonce, transaction); {
	case errors.Is(err, errAuthorizationUsed):
		return invalidUsed(), nil
	case errors.Is(err, errInsufficientBalance):
		return invalidBalance(), nil
	default:
		return nil, err
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
