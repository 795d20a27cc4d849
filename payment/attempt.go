package payment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Caller is the account that makes the call.
type Caller struct {
	Account uuid.UUID
	KeyHash []byte // of the API key that it came with
	// RepeatOnly, if not nil, restricts the call to repeating a stored response. Everything else returns this error.
	RepeatOnly error
	// Suspended, if not nil, is returned for every payment that is not in the ledger yet or would be used for another call. What was
	// recorded before is completed and repeated.
	Suspended error
}

// Attempt is the payment of a request: decoded, matched with the payment requirements, and checked without the facilitator.
type Attempt struct {
	id           uuid.UUID // of its row, should it become one
	operation    *Operation
	scheme       Scheme
	payload      payload
	requirements x402.PaymentRequirements // ours; the payer's copy of the terms is never used
	checked
	caller      *Caller             // nil where there is no account yet
	client      string              // see Engine.Challenge
	request     []byte              // canonical
	fingerprint [sha256.Size]byte   // of operation, account and request, as the ledger stores it
	former      [][sha256.Size]byte // the same with former response keys
	identifier  string              // payment-identifier; "" without one
	expired     *Error              // not nil: the payment is too old to begin, or for former terms, but may be repeated
	retried     bool                // by the recovery worker; no caller waits
	begun       bool                // this call wrote the row
	proven      bool                // see Engine.prove
	unknown     bool                // its payment channel is not in the ledger, and so neither is this voucher
}

// Payer is the lower-case address that pays. It is a claim unless Genuine is true.
func (a *Attempt) Payer() string { return a.checked.Payer }

// Identity is the lower-case address whose key signed the payment: the wallet, or the one that signs the vouchers of a payment channel.
// Anybody can deposit into a channel that names another wallet as its payer, so a voucher does not prove the payer.
func (a *Attempt) Identity() string { return a.identity }

// Signer is Identity if that is certain, else "": whoever names a wallet must not use up its tokens.
func (a *Attempt) Signer() string {
	if !a.Conclusive {
		return ""
	}
	return a.Identity()
}

// Request is the canonical form of the request.
func (a *Attempt) Request() []byte { return a.request }

// Version is the x402 version of the payment.
func (a *Attempt) Version() int { return a.payload.version() }

// Genuine reports whether the payment has not expired and is signed by the payer's own key. A voucher proves the key of its
// payment channel, and anybody can name any payer in a channel of his own: it is genuine if the channel was charged lately.
func (a *Attempt) Genuine() bool { return a.Conclusive && a.expired == nil && !a.unproven }

// Parse reads the payment of a request and checks it against the operation's payment requirements. Request is the canonical
// form of the request, which the payment is bound to. Client is that of [Engine.Challenge]. The error is an *Error.
func (e *Engine) Parse(ctx context.Context, operation *Operation, header http.Header, caller *Caller, client string, request []byte) (*Attempt, error) {
	payload, err := e.decode(operation, header)
	if err != nil {
		return nil, err
	}
	scheme := e.schemeOf(payload)
	requirements, ok := x402.PaymentRequirements{}, false
	if scheme != nil {
		requirements, ok = scheme.Match(operation.requirements, payload)
	}
	var former *Error // not nil: the payment is for terms that are not ours, or not any more
	switch {
	case scheme == nil:
		return nil, e.refused(operation, "No matching payment requirements", mismatch(operation, payload))
	case !ok:
		former = e.refused(operation, "No matching payment requirements", mismatch(operation, payload))
		requirements = scheme.Terms(payload)
	}
	identifier, ok := identifierOf(payload.extensions())
	if !ok {
		return nil, e.malformed(operation, x402.HeaderPaymentSignature, "extensions.payment-identifier.info.id must have 16 to 128 characters from a-z, A-Z, 0-9, _ and -")
	}
	checked, err := scheme.Check(ctx, requirements, payload)
	bad, isBad := errors.AsType[*x402.Invalid](err)
	_, busy := errors.AsType[*Error](err)
	switch {
	case err != nil && !busy && former != nil && (!isBad || !bad.OutOfTime): // also terms that can never have been ours
		return nil, former
	case isBad && !bad.OutOfTime:
		return nil, e.refused(operation, bad.Reason, bad.Message)
	case err != nil && !isBad:
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	attempt := &Attempt{
		id: id, operation: operation, scheme: scheme, payload: payload, requirements: requirements, checked: checked,
		caller: caller, client: client, request: request,
	}
	if isBad {
		attempt.expired = e.refused(operation, bad.Reason, bad.Message)
	}
	account := ""
	if caller != nil {
		account = caller.Account.String()
	}
	// Without an account the identifier belongs to the payer, so the signature must be checked.
	if caller != nil || checked.Conclusive {
		attempt.identifier = identifier
	}
	attempt.fingerprint = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", operation.ID, account, request))
	if operation.Secret {
		attempt.fingerprint, attempt.former = e.responseKeys.fingerprints(attempt.fingerprint)
	}
	if former == nil {
		return attempt, nil
	}
	attempt.expired = former
	switch row, err := e.lookUp(ctx, attempt); {
	case err != nil:
		return nil, outcomeUnknown(err)
	case row == nil || row.Operation != operation.ID || !attempt.same(row):
		return nil, former
	}
	return attempt, nil // it was begun before the terms changed
}

// mismatch tells why a payment matches no entry of accepts. The most frequent reason is a payment for another operation.
func mismatch(operation *Operation, payload payload) string {
	if amount, err := strconv.ParseUint(payload.amount(), 10, 64); err == nil && amount != operation.Price {
		return fmt.Sprintf("the payment is for %d atomic units, and this operation costs exactly %d; sign one of the entries of accepts in the PAYMENT-REQUIRED header",
			amount, operation.Price)
	}
	return "the payment does not match the payment requirements of this operation; sign one of the entries of accepts in the PAYMENT-REQUIRED header"
}

// decode decodes the payment header, of x402 version 2 or 1. Version 2 counts if both are present.
func (e *Engine) decode(operation *Operation, header http.Header) (decoded payload, err error) {
	name := x402.HeaderPaymentSignature
	if header.Get(name) == "" {
		name = x402.HeaderPaymentV1
	}
	if len(header.Values(name)) > 1 {
		return payload{}, e.malformed(operation, name, "send exactly one "+name+" header")
	}
	if name == x402.HeaderPaymentV1 {
		decoded.exact, err = x402.DecodePaymentPayloadV1(header.Get(name), e.config.Network)
	} else {
		decoded.exact, decoded.channel, err = x402.DecodePayment(header.Get(name))
	}
	if err != nil {
		return payload{}, e.malformed(operation, name, err.Error())
	}
	e.completeV1(decoded, operation)
	return decoded, nil
}

// completeV1 adds the resource, which version 1 does not carry and the facilitator expects.
func (e *Engine) completeV1(payload payload, operation *Operation) {
	if payload.version() == x402.VersionV1 {
		resource := e.resource(operation)
		payload.exact.Resource = &resource
	}
}

// SignedByRecentPayer reports whether the payment of a request is signed by the key of a wallet, or of a payment channel, that paid
// lately. It is cheap: it checks the signature only if the payment names such a payer, and needs no I/O.
func (e *Engine) SignedByRecentPayer(operation *Operation, header http.Header) bool {
	payload, err := e.decode(operation, header)
	if err != nil {
		return false
	}
	scheme := e.schemeOf(payload)
	if scheme == nil || !scheme.PaidLately(payload) {
		return false
	}
	requirements, ok := scheme.Match(operation.requirements, payload)
	if !ok {
		return false
	}
	checked, err := scheme.CheckKey(requirements, payload)
	return err == nil && checked.Conclusive
}

// restore makes the original attempt from a row of the ledger.
func (e *Engine) restore(row *store.Payment) (*Attempt, error) {
	operation := e.operations[row.Operation]
	if operation == nil {
		return nil, fmt.Errorf("the contract has no operation %s any more", row.Operation)
	}
	request, raw, err := e.responseKeys.openRow(row)
	if err != nil {
		return nil, fmt.Errorf("open the request of a payment: %w", err)
	}
	attempt := &Attempt{
		id: row.ID, operation: operation, request: request,
		checked: checked{Checked: x402.Checked{Payer: row.Payer, Nonce: row.Nonce, ValidBefore: row.ValidBefore}, identity: row.Payer},
	}
	switch {
	case row.Scheme == x402.SchemeBatch:
		attempt.payload.channel, err = x402.ParseBatchPayment(raw)
	case row.X402Version == x402.VersionV1:
		attempt.payload.exact, err = x402.ParsePaymentPayloadV1(raw, e.config.Network)
	default:
		attempt.payload.exact, err = x402.ParsePaymentPayload(raw)
	}
	if err != nil {
		return nil, err
	}
	e.completeV1(attempt.payload, operation)
	if attempt.scheme = e.schemeOf(attempt.payload); attempt.scheme == nil {
		return nil, fmt.Errorf("this server does not take payments of scheme %s any more", row.Scheme)
	}
	if err := attempt.scheme.Restore(attempt, row); err != nil {
		return nil, err
	}
	if row.AgentID != nil {
		attempt.caller = &Caller{Account: *row.AgentID, KeyHash: row.KeyHash}
	}
	copy(attempt.fingerprint[:], row.Fingerprint)
	if row.PaymentIdentifier != nil {
		attempt.identifier, _ = identifierOf(attempt.payload.extensions())
	}
	return attempt, nil
}

// row makes the ledger's row.
func (a *Attempt) row() *store.Payment {
	signatureHash := a.signatureHash()
	row := &store.Payment{PaymentRecord: store.PaymentRecord{
		ID: a.id, X402Version: int16(a.payload.version()), Scheme: a.requirements.Scheme, Network: a.requirements.Network,
		Asset: strings.ToLower(a.requirements.Asset), Payer: a.checked.Payer, Nonce: a.Nonce, PayTo: strings.ToLower(a.requirements.PayTo),
		Amount: int64(a.operation.Price), ValidBefore: a.ValidBefore, Operation: a.operation.ID, AgentID: a.account(), //nolint:gosec // a price
		PaymentIdentifier: a.identifierHash(),
	}, Fingerprint: a.fingerprint[:], SignatureHash: signatureHash[:], Secret: a.operation.Secret, Request: a.request, Payload: a.payload.raw()}
	if a.caller != nil {
		row.KeyHash = a.caller.KeyHash
	}
	a.scheme.Record(a, row)
	return row
}

// account is the caller's account, or nil.
func (a *Attempt) account() *uuid.UUID {
	if a.caller == nil {
		return nil
	}
	return &a.caller.Account
}

// repeatOnly is Caller.RepeatOnly, or nil.
func (a *Attempt) repeatOnly() error {
	if a.caller == nil {
		return nil
	}
	return a.caller.RepeatOnly
}

// executesFirst reports whether the call executes a read before its payment is certain. The ledger is then asked first: a payment that
// is settled, refused or in progress must not buy the execution again. A voucher is compared with its channel first; only its payment
// identifier can be in the ledger.
func (a *Attempt) executesFirst() bool {
	return a.operation.Reads() && (a.scheme.Moves() || a.identifier != "")
}

// nothingNew is why the caller may not begin a call, or nil.
func (a *Attempt) nothingNew() error {
	if a.caller == nil || a.caller.RepeatOnly != nil {
		return a.repeatOnly()
	}
	return a.caller.Suspended
}

func (a *Attempt) paid() Paid { return Paid{ID: a.id, Payer: a.Identity()} }

// same reports whether the row is this very payment.
func (a *Attempt) same(row *store.Payment) bool { return a.scheme.Same(a, row) }

// sameNonce reports whether the row is of this very authorization.
func (a *Attempt) sameNonce(row *store.Payment) bool {
	return row.Payer == a.checked.Payer && row.Nonce == a.Nonce
}

// owns reports whether the row's payment was made for this request. An undeliverable payment may be redeemed with another
// request of the same operation and account.
func (a *Attempt) owns(row *store.Payment) bool {
	sameRequest := slices.ContainsFunc(a.fingerprints(), func(one []byte) bool { return bytes.Equal(row.Fingerprint, one) })
	if row.State == store.PaymentUndeliverable {
		account := a.account()
		sameAccount := row.AgentID == account || (row.AgentID != nil && account != nil && *row.AgentID == *account)
		sameRequest = row.Operation == a.operation.ID && sameAccount
	}
	if !a.same(row) {
		return sameRequest
	}
	hash := a.identifierHash()
	if (row.PaymentIdentifier == nil) != (hash == nil) || (hash != nil && *row.PaymentIdentifier != *hash) {
		return row.State == store.PaymentFailed && sameRequest // a failed payment keeps no identifier
	}
	// A signature that we cannot check proves nothing: anybody can read payer and nonce of a settled payment on the chain.
	// Only the signature that was verified at the first attempt is accepted.
	if hash := a.signatureHash(); !a.Conclusive && !bytes.Equal(row.SignatureHash, hash[:]) {
		return false
	}
	return sameRequest
}

// fingerprints are those that a row of the same request can have.
func (a *Attempt) fingerprints() [][]byte {
	all := [][]byte{a.fingerprint[:]}
	for i := range a.former {
		all = append(all, a.former[i][:])
	}
	return all
}

func (a *Attempt) signatureHash() [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.ToLower(a.payload.signature())))
}

// identifierHash is the identifier as the ledger stores it, or nil.
func (a *Attempt) identifierHash() *string {
	if a.identifier == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(a.identifier))
	text := hex.EncodeToString(sum[:])
	return &text
}
