// Package payment charges for calls with x402. The effect of a call happens exactly once and is paid for exactly once, or no
// money moves. The engine records every payment in the ledger (package store), settles it through a facilitator, and commits
// the effect and the record of the payment in one database transaction.
//
// The package does not depend on the HTTP framework or on the operations. Its input is a [Call]: a payment that [Engine.Parse]
// has read, and what to do for it. Its output is a [Receipt] or an error: an [*Error], a [*store.Refusal] from the handler, or an
// unexpected error.
//
// How a call is paid stands behind the interface [Scheme]: [Exact], and the payment channels of package channel.
package payment

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Config is the operator's configuration. BaseURL is the URL of the paid resources.
type Config struct {
	Network x402.Network
	PayTo   string
	BaseURL string
}

// Operation is a paid operation. Price is in atomic units of the network's token.
type Operation struct {
	ID          string
	Path        string // below Config.BaseURL
	Description string // for the payer
	Price       uint64
	ReadOnly    bool                      // changes nothing: the dry run's response is the one that is paid for
	Secret      bool                      // the response holds a TAN or an API key
	Account     bool                      // the call needs an API key
	Paged       bool                      // returns a page of messages
	Search      bool                      // examines many rows
	Transacted  bool                      // needs a transaction of its own
	Extensions  map[string]jsontext.Value // x402 extensions in the 402

	challenges []*Error // by the ranks of all schemes: see Engine.Challenge
}

// recorded reports whether the ledger stores something else than the response.
func (o *Operation) recorded() bool { return o.Paged || o.Secret }

// Reads reports whether the response can show what others wrote.
func (o *Operation) Reads() bool { return o.ReadOnly || o.Paged }

// Requirements are the payment requirements of the operation.
func (o *Operation) Requirements() []x402.PaymentRequirements {
	if len(o.challenges) == 0 {
		return nil
	}
	return o.challenges[0].Required.Accepts
}

// Challenges are all that Engine.Challenge returns for the operation.
func (o *Operation) Challenges() []*Error { return o.challenges }

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

// Paid names the payment that a handler runs for, and what the handler may read.
type Paid struct {
	ID    uuid.UUID // of its row in the ledger
	Payer string    // see Attempt.Identity
	Page  int64     // how many bytes of content a page may have: store.ShortPage or store.LongPage
}

// Call is one request for a paid operation.
type Call struct {
	Attempt *Attempt
	// Locks is the id of what a call in a transaction of its own locks for others: a conversation, or the recipient of a message; "" if
	// there is nothing.
	Locks func(request []byte) string
	// Work returns what the operation does in the database; it runs later, perhaps several times, and makes the JSON of the response.
	Work func(paid Paid) store.Work
	// Reserve runs in the transaction that begins the settlement. It reserves what no other call may take before delivery. It
	// may be nil.
	Reserve func(ctx context.Context, tx *store.Tx, paid Paid) error
	// Repeat makes the response of an operation that is Paged or Secret again, from what the ledger stored of it when the payment was
	// delivered.
	Repeat func(ctx context.Context, delivered *store.Payment, stored []byte) ([]byte, error)
	// Admit runs before a payment begins, and before an undeliverable payment is redeemed. An error rejects the call. It may be
	// nil.
	Admit func() error
}

// work is what the call does in the database. Page is as in Paid.
func (c *Call) work(page int64) store.Work {
	return c.Work(Paid{ID: c.Attempt.id, Payer: c.Attempt.Identity, Page: page})
}

// reserve is Reserve for the store.
func (c *Call) reserve(ctx context.Context) func(tx *store.Tx) error {
	if c.Reserve == nil {
		return nil
	}
	return func(tx *store.Tx) error { return c.Reserve(ctx, tx, Paid{ID: c.Attempt.id, Payer: c.Attempt.Identity}) }
}

// Admitted returns the error of Admit.
func (c *Call) Admitted() error {
	if c.Admit == nil {
		return nil
	}
	return c.Admit()
}

// Receipt is the result of a paid call.
type Receipt struct {
	Response []byte
	Settled  *x402.SettleResponse
	Repeated bool // the payment was delivered by an earlier call
}

// Restore makes the call of a payment in the ledger, for the recovery worker.
type Restore func(ctx context.Context, row *store.Payment, attempt *Attempt) (*Call, error)
