package payment

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Attempt is the payment of a request: decoded, matched with the payment requirements, and checked without the facilitator.
type Attempt struct {
	Operation    *Operation
	Requirements x402.PaymentRequirements // ours; the payer's copy of the terms is never used
	Checked
	Caller     *Caller      // nil where there is no account yet
	Client     string       // see Engine.Challenge
	Address    netip.Prefix // of the client: an IPv4 address, or an IPv6 /64
	Expired    *Error       // not nil: the payment is too old to begin, or for former terms, but may be repeated
	Unrecorded bool         // the scheme found that the payment cannot be in the ledger

	payment     Payment
	payload     x402.Payment
	id          uuid.UUID         // of its row, should it become one
	request     []byte            // canonical
	fingerprint [sha256.Size]byte // of operation, account and request, as the ledger stores it
	identifier  *string           // payment-identifier, hashed; nil without one
	key         *string           // Idempotency-Key, hashed; nil without one
	retried     bool              // by the recovery worker; no caller waits
	begun       bool              // this call wrote the row
	proven      bool              // see Engine.prove
	taken       int               // tokens: see Engine.takeTokens
	giveBack    []func()          // what takeTokens took
	others      int               // how many other payments of the wallet are being settled
	othersMove  uint64            // their sum
}

// Payer is the lower-case address that pays. It is a claim unless Genuine is true.
func (a *Attempt) Payer() string { return a.Checked.Payer }

// Channel is the id of the payment channel that pays, or "".
func (a *Attempt) Channel() string { return a.payment.Channel() }

// Signer is Identity if that is certain, else "": whoever names a wallet must not use up its tokens.
func (a *Attempt) Signer() string {
	if !a.Conclusive {
		return ""
	}
	return a.Identity
}

// Request is the canonical form of the request.
func (a *Attempt) Request() []byte { return a.request }

// Version is the x402 version of the payment.
func (a *Attempt) Version() int { return a.payload.Version() }

// Genuine reports whether the payment has not expired and is signed by the payer's own key. A voucher proves the key of its
// payment channel, and anybody can name any payer in a channel of his own: it is genuine if the channel was charged lately.
func (a *Attempt) Genuine() bool { return a.Conclusive && a.Expired == nil && !a.Unproven }

// With returns a copy that pays with another payload, which has not expired.
func (a *Attempt) With(payload x402.Payment, checked Checked, payment func(*Attempt) Payment) *Attempt {
	other := *a
	other.payload, other.Checked, other.Expired = payload, checked, nil
	other.payment = payment(&other)
	return &other
}

// Parse reads the payment of a request and checks it against the operation's payment requirements. Request is the canonical
// form of the request, which the payment is bound to. Client is as in [Engine.Challenge]. Address is the client's, as in [Attempt]. The
// error is an *Error.
func (e *Engine) Parse(
	ctx context.Context, operation *Operation, header http.Header, caller *Caller, client string, address netip.Prefix, request []byte,
) (*Attempt, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	a := &Attempt{id: id, Operation: operation, Caller: caller, Client: client, Address: address, request: request}
	if err := e.read(a, header); err != nil {
		return nil, err
	}
	var former *Error // not nil: the payment is for terms that are not ours, or not any more
	offer, ours := x402.PaymentRequirements{}, false
	if a.payment != nil {
		offer, ours = a.payment.Match(operation.Requirements())
	}
	if !ours {
		former = e.Mismatch(operation, a.payload)
		if a.payment == nil {
			return nil, former
		}
		offer = a.payment.Terms()
	}
	a.Requirements = offer
	identifier, ok := identifierOf(a.payload.Extension(identifierExtension))
	if !ok {
		return nil, e.malformed(operation, x402.HeaderPaymentSignature,
			"extensions.payment-identifier.info.id must have 16 to 128 characters from a-z, A-Z, 0-9, _ and -")
	}
	a.Checked, err = e.check(ctx, a)
	if err == nil && a.NoPayment != nil {
		err = a.NoPayment
	}
	bad, isBad := errors.AsType[*x402.Invalid](err)
	_, busy := errors.AsType[*Error](err)
	switch {
	case err != nil && !busy && former != nil && (!isBad || !bad.OutOfTime): // also terms that can never have been ours
		return nil, former
	case isBad && !bad.OutOfTime:
		return nil, e.Refused(operation, bad.Reason, bad.Message)
	case isBad:
		a.Expired = e.Refused(operation, bad.Reason, bad.Message)
	case err != nil:
		return nil, err
	}
	account, key := "", header.Get(HeaderIdempotencyKey)
	if caller != nil {
		account = caller.Account.String()
	}
	// Without an account both names belong to the payer, so the signature must be checked. A key can be guessed, so it belongs to who signs:
	// a payment channel can name any payer.
	if caller != nil || a.Conclusive {
		a.identifier = nameOf(identifier)
	}
	switch {
	case caller == nil && a.Conclusive && key != "":
		a.key = nameOf(a.Identity + " " + key)
	case caller != nil:
		a.key = nameOf(key)
	}
	a.fingerprint = sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", operation.ID, account, request))
	if former == nil {
		return a, nil
	}
	a.Expired = former
	switch row, err := e.lookUp(ctx, a); {
	case err != nil:
		return nil, OutcomeUnknown(err)
	case row == nil || row.Operation != operation.ID || !a.payment.Same(row):
		return nil, former
	}
	return a, nil // it was begun before the terms changed
}

// check runs the checks that need no facilitator. A 65-byte signature that does not recover to the payer is invalid unless
// the payer is a contract, which may define valid signatures itself. Only the chain knows whether the payer is a contract, so
// that lookup comes last. An expired payment skips it: it cannot begin, and it is repeated only with the signature that was
// verified before.
func (e *Engine) check(ctx context.Context, a *Attempt) (Checked, error) {
	now := e.Store.Now()
	byKey, err := a.payment.Check(a.Requirements, now, true)
	if bad, isBad := errors.AsType[*x402.Invalid](err); !isBad || !bad.MayBeContract() {
		return byKey, err
	}
	unsigned, termsErr := a.payment.Check(a.Requirements, now, false)
	if termsErr != nil {
		return unsigned, termsErr
	}
	switch isContract, contractErr := e.isContract(ctx, a); {
	case contractErr != nil:
		return Checked{}, contractErr
	case !isContract:
		return byKey, err
	}
	return unsigned, nil
}

// Mismatch returns the 402 for a payment that matches no entry of accepts. It says which member differs.
func (e *Engine) Mismatch(operation *Operation, payload x402.Payment) *Error {
	return e.Refused(operation, "No matching payment requirements", mismatch(operation, payload))
}

func mismatch(operation *Operation, payload x402.Payment) string {
	const remedy = "; sign one of the entries of accepts in the PAYMENT-REQUIRED header"
	theirs := payload.Offer()
	var schemes []string
	for _, ours := range operation.Requirements() {
		schemes = append(schemes, strconv.Quote(ours.Scheme))
		member := x402.Difference(ours, theirs, payload.Version())
		switch member {
		case "scheme", "":
			continue
		case "amount":
			return fmt.Sprintf("the payment is for %s atomic units, and this operation costs exactly %s", Shorten(theirs.Amount, maxReason),
				ours.Amount) + remedy
		}
		return fmt.Sprintf("%s is %s in accepted of the payment, and %s in accepts", member, Shorten(theirs.Member(member), maxReason),
			ours.Member(member)) + remedy
	}
	return fmt.Sprintf("scheme is %q in accepted of the payment, and %s in accepts", Shorten(theirs.Scheme, maxReason),
		strings.Join(schemes, " or ")) + remedy
}

// read decodes the payment header, of x402 version 2 or 1. Version 2 counts if both are present. The attempt has no payment if no scheme
// of this server takes it.
func (e *Engine) read(a *Attempt, header http.Header) error {
	name := x402.HeaderPaymentSignature
	if header.Get(name) == "" {
		name = x402.HeaderPaymentV1
	}
	if len(header.Values(name)) > 1 {
		return e.malformed(a.Operation, name, "send exactly one "+name+" header")
	}
	var payload x402.Payment
	var err error
	if name == x402.HeaderPaymentV1 {
		payload, err = x402.DecodePaymentPayloadV1(header.Get(name), e.Network)
	} else {
		payload, err = x402.DecodePayment(header.Get(name))
	}
	if err != nil {
		return e.malformed(a.Operation, name, err.Error())
	}
	e.setPayload(a, payload)
	return nil
}

func (e *Engine) setPayload(a *Attempt, payload x402.Payment) {
	a.payload = payload
	for _, scheme := range e.schemes {
		if a.payment = scheme.Payment(a, payload); a.payment != nil {
			return
		}
	}
}

// SignedByRecentPayer reports whether the payment of a request is signed by the key of a wallet, or of a payment channel, that paid
// lately. It is cheap: it checks the signature only if the payment names such a payer, and needs no I/O.
func (e *Engine) SignedByRecentPayer(operation *Operation, header http.Header) bool {
	a := &Attempt{Operation: operation}
	if e.read(a, header) != nil || a.payment == nil || !a.payment.PaidLately() {
		return false
	}
	requirements, ok := a.payment.Match(operation.Requirements())
	if !ok {
		return false
	}
	checked, err := a.payment.Check(requirements, e.Store.Now(), true)
	return err == nil && checked.Conclusive
}

// restore makes the original attempt from a row of the ledger.
func (e *Engine) restore(row *store.Payment) (*Attempt, error) {
	operation := e.operations[row.Operation]
	if operation == nil {
		return nil, fmt.Errorf("the contract has no operation %s any more", row.Operation)
	}
	a := &Attempt{id: row.ID, Operation: operation, request: row.Request}
	var payload x402.Payment
	var err error
	if row.X402Version == x402.VersionV1 {
		payload, err = x402.ParsePaymentPayloadV1(row.Payload, e.Network)
	} else {
		payload, err = x402.ParsePayment(row.Payload)
	}
	if err != nil {
		return nil, err
	}
	if e.setPayload(a, payload); a.payment == nil {
		return nil, fmt.Errorf("this server does not take payments of scheme %s any more", row.Scheme)
	}
	a.Requirements = a.payment.Terms() // the price or the payee may have changed since
	a.Checked, err = a.payment.Check(a.Requirements, row.CreatedAt, false)
	if late, ok := errors.AsType[*x402.Invalid](err); err != nil && (!ok || !late.OutOfTime) {
		return nil, err
	}
	if row.AgentID != nil {
		a.Caller = &Caller{Account: *row.AgentID, KeyHash: row.KeyHash}
	}
	copy(a.fingerprint[:], row.Fingerprint)
	a.identifier, a.key = row.PaymentIdentifier, row.IdempotencyKey
	return a, nil
}

// row makes the ledger's row.
func (a *Attempt) row() *store.Payment {
	signatureHash := a.signatureHash()
	row := &store.Payment{PaymentRecord: store.PaymentRecord{
		ID: a.id, X402Version: int16(a.payload.Version()), Scheme: a.Requirements.Scheme, Network: a.Requirements.Network,
		Asset: strings.ToLower(a.Requirements.Asset), Payer: a.Payer(), Nonce: a.Nonce, PayTo: strings.ToLower(a.Requirements.PayTo),
		Amount: a.price(), ValidBefore: a.ValidBefore, Operation: a.Operation.ID, AgentID: a.account(),
		PaymentIdentifier: a.identifier, IdempotencyKey: a.key,
	}, Fingerprint: a.fingerprint[:], SignatureHash: signatureHash[:], Secret: a.Operation.Secret, Request: a.request,
		Payload: a.payload.Raw()}
	if a.Caller != nil {
		row.KeyHash = a.Caller.KeyHash
	}
	a.payment.Record(row)
	return row
}

// Charged makes the row of a payment that the ledger charges. It has nothing of what only recovery needs.
func (a *Attempt) Charged() *store.Payment {
	row := a.row()
	row.Request, row.Payload, row.KeyHash = nil, nil, nil
	return row
}

func (a *Attempt) price() int64 { return int64(a.Operation.Price) } //nolint:gosec // a price

// account is the caller's account, or nil.
func (a *Attempt) account() *uuid.UUID {
	if a.Caller == nil {
		return nil
	}
	return &a.Caller.Account
}

// repeatOnly is Caller.RepeatOnly, or nil.
func (a *Attempt) repeatOnly() error {
	if a.Caller == nil {
		return nil
	}
	return a.Caller.RepeatOnly
}

// executesFirst reports whether the call executes a read before its payment is certain. The ledger is then asked first: a payment that
// is settled, refused or in progress must not buy the execution again. A voucher is compared with its channel first; only the names of
// its call can be in the ledger.
func (a *Attempt) executesFirst() bool {
	return a.Operation.Reads() && (a.moves() || a.identifier != nil || a.key != nil)
}

// NothingNew is why the caller may not begin a call, or nil.
func (a *Attempt) NothingNew() error {
	if a.Caller == nil || a.Caller.RepeatOnly != nil {
		return a.repeatOnly()
	}
	return a.Caller.Suspended
}

// moves reports whether the payment moves money on the chain.
func (a *Attempt) moves() bool {
	_, moves := a.payment.(Mover)
	return moves
}

func (a *Attempt) signatureHash() [sha256.Size]byte {
	return sha256.Sum256([]byte(strings.ToLower(a.payload.SignatureHex())))
}
