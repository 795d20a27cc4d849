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

// settle repeats the checks and moves the money. An error means that the outcome is not known.
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
	f.waitForBlock()
	// The checks saw the ledger as it was; the ledger itself decides between payments that came together.
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

// mine moves the money, or says why the token contract refused. An error means that the outcome is not known.
func (f *Facilitator) mine(a x402.Authorization, transaction string) (*x402.Invalid, error) {
	amount, err := strconv.ParseUint(a.Value, 10, 64)
	if err != nil {
		return invalidBalance(), nil // nobody has that much
	}
	switch err := f.ledger.Transfer(a.From, a.To, amount, a.Nonce, transaction); {
	case errors.Is(err, ErrAuthorizationUsed):
		return invalidUsed(), nil
	case errors.Is(err, ErrInsufficientBalance):
		return invalidBalance(), nil
	default:
		return nil, err
	}
}

// sentAt returns when a transfer was sent that was left pending, else now: a chain asks whether an authorization was
// in time when the transfer reached it.
func (f *Facilitator) sentAt(signature string, now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if transfer, ok := f.sent[signature]; ok {
		return transfer.at
	}
	return now
}

// send puts a transfer on its way: the one that was left pending, under its old transaction, or a new one. pending is
// true if it shall be left (again).
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

// waitForBlock takes as long as a settlement shall. It holds no lock meanwhile: blocks take many transfers at once.
func (f *Facilitator) waitForBlock() {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	time.Sleep(delay)
}

// forget drops a transfer that is no longer pending.
func (f *Facilitator) forget(signature string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sent, signature)
}

// newTransaction returns a transaction hash that never was before: 0x and 64 hex digits.
func newTransaction() string {
	var hash [32]byte
	_, _ = rand.Read(hash[:]) // never fails: without randomness the program ends
	return "0x" + hex.EncodeToString(hash[:])
}
