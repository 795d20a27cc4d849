// Package payment takes money for calls with x402. It promises that the effect of a call happens exactly once and is paid
// for exactly once, or that no money moves. It keeps every payment in the ledger of package store, settles it through a
// facilitator, and makes the effect and the record of the payment visible in one database transaction.
//
// The package knows neither the HTTP framework nor what the calls do. Its input is a [Call]: an operation, a payment that
// [Engine.Parse] has read, and a [Handler]. Its output is a [Receipt] or an error: an [*Error], a [*store.Refusal] of the
// handler, or whatever else went wrong.
package payment

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Config says who is paid, and where. BaseURL is the address of the paid resources.
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
	ReadOnly    bool // it changes nothing: its dry run is the run that is paid for
	Secret      bool // its response holds a TAN or an API key
	Account     bool // only agents with an account call it
	Weight      int64
	Extensions  map[string]jsontext.Value // x402 extensions that its payment requirements announce

	requirements []x402.PaymentRequirements
	challenge    *Error
}

// Requirements are the ways to pay for the operation.
func (o *Operation) Requirements() []x402.PaymentRequirements { return o.requirements }

// Challenge is the 402 for a request without payment. It is made once per operation.
func (o *Operation) Challenge() *Error { return o.challenge }

// Paid names the payment that a handler runs for.
type Paid struct {
	ID    uuid.UUID // of its row in the ledger
	Payer string    // lower-case address
}

// Handler runs the operation of a call in tx and returns the JSON of its response. It may run several times: in a dry run,
// whose effect is rolled back, and at delivery. An error undoes what it did.
type Handler func(ctx context.Context, tx *store.Store, paid Paid) (response []byte, err error)

// Batched is the effect of a call that can share one statement with those of other calls (group commit).
type Batched interface {
	// Check is the dry run: it tells whether the operation's rules allow the effect, and changes nothing.
	Check(ctx context.Context) error
	// Deliver makes the effect and closes the payment in one transaction; record makes the ledger's entry for a response.
	// With store.ErrNotBatched nothing happened, and the call's Handler runs in a transaction of its own.
	Deliver(ctx context.Context, record func(response []byte) (store.Delivery, error)) (response []byte, err error)
}

// Call is one request for a paid operation.
type Call struct {
	Attempt *Attempt
	Handle  Handler
	Batched Batched // nil for most operations
	// Reserve keeps, in the transaction that begins the settlement, what must not change hands until delivery. It may be nil.
	Reserve func(ctx context.Context, tx *store.Store, paid Paid) error
	// Admit is asked before money moves for the request, and where a payment that settled before is redeemed with another
	// request. It may be nil.
	Admit func() error
}

// Receipt is a paid response.
type Receipt struct {
	Response []byte
	Settled  *x402.SettleResponse
	Repeated bool // the payment was delivered by an earlier call
}

// Restore makes the call of a payment in the ledger again, for the recovery worker. The attempt is already made.
type Restore func(ctx context.Context, row *store.Payment, attempt *Attempt) (*Call, error)

// Engine brings payments from wherever they stand to their end.
type Engine struct {
	config     Config
	store      *store.Store
	log        *slog.Logger
	scheme     Scheme
	operations map[string]*Operation // by ID
	slots      *slots
	payers     *payers
	metrics    *metrics
	unrecorded unrecorded
	wake       chan struct{} // for the recovery worker: there is more to be done
}

// New makes an engine for the operations, which it completes with their payment requirements.
func New(config Config, operations []*Operation, database *store.Store, facilitator Facilitator, chain Chain, log *slog.Logger) (*Engine, error) {
	payers := newPayers()
	scheme, err := newExact(config, facilitator, chain, payers, log)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		config: config, store: database, log: log, scheme: scheme, operations: map[string]*Operation{},
		slots: newSlots(), payers: payers, wake: make(chan struct{}, 1),
	}
	e.metrics = newMetrics(database, e.Ready)
	scheme.settling = e.metrics.settling
	for _, operation := range operations {
		e.operations[operation.ID] = operation
		operation.requirements = []x402.PaymentRequirements{scheme.Requirements(operation.Price)}
		operation.Extensions[identifierExtension] = identifierOffer
		if operation.challenge, err = e.newChallenge(operation); err != nil {
			return nil, fmt.Errorf("payment requirements of %s: %w", operation.ID, err)
		}
	}
	return e, nil
}

// Ready tells whether payments can settle now.
func (e *Engine) Ready() bool { return e.scheme.Available() == nil }

// Probe asks the facilitator whether it is there, if nobody has asked within the last second.
func (e *Engine) Probe(ctx context.Context) error { return e.scheme.Probe(ctx) }

// PaidLately tells whether a payment of the wallet settled in the last ten minutes, as far as this server knows.
func (e *Engine) PaidLately(wallet string) bool { return e.payers.settledLately(wallet) }

// joinTime is how long a copy of a payment that is being settled waits for the response before it is told to come again.
const joinTime = 5 * time.Second
