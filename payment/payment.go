// Package payment charges for calls with x402. The effect of a call happens exactly once and is paid for exactly once, or no
// money moves. The engine records every payment in the ledger (package store), settles it through a facilitator, and commits
// the effect and the record of the payment in one database transaction.
//
// The package does not depend on the HTTP framework or on the operations. Its input is a [Call]: a payment that [Engine.Parse]
// has read, and what to do for it. Its output is a [Receipt] or an error: an [*Error], a [*store.Refusal] from the handler, or an
// unexpected error.
package payment

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/tracing"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Config is the operator's configuration. BaseURL is the URL of the paid resources.
type Config struct {
	Network x402.Network
	PayTo   string
	BaseURL string
	Channels
	// ResponseKeys seal and open stored responses: the first one seals, all of them open. All servers of a database have the same.
	ResponseKeys []ResponseKey
	Tracer       *tracing.Tracer // nil without tracing
}

// Channels are the terms of payment channels (x402 scheme batch-settlement).
type Channels struct {
	// Authorizer is the key that signs claims and refunds of payment channels. It holds no money. Without it payment channels
	// are not offered. Only one ledger may use it: two would accept the same voucher.
	Authorizer *ecdsa.PrivateKey
	// FormerAuthorizers are keys that were Authorizer before. They still sign claims and refunds of the payment channels that have
	// them, which take no more vouchers.
	FormerAuthorizers []*ecdsa.PrivateKey
	// WithdrawDelay is how long a payer's withdrawal from its payment channel takes: 15 minutes to 30 days.
	WithdrawDelay time.Duration
	// MinDeposit is the deposit that is suggested to payers, in atomic units. A tenth of it is the least.
	MinDeposit uint64
	// ClaimAge and ClaimSum say when vouchers are claimed on the chain: when the oldest one of a payment channel has this age,
	// or when they reach this sum, in atomic units. They are claimed at once when the payer withdraws.
	ClaimAge time.Duration
	ClaimSum uint64
	// MaxUnclaimed and MaxUnclaimedTotal bound what is charged and not claimed: of one payment channel and of all, in atomic units.
	// At the bound vouchers are refused until a claim succeeds. 0 is no bound.
	MaxUnclaimed, MaxUnclaimedTotal uint64
	// IdleRefund is after how long without calls the rest of a payment channel is refunded. 0 is never.
	IdleRefund time.Duration
	// ExactFirst offers payment channels after exact. Clients take the first scheme that they know.
	ExactFirst bool
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
	Paged       bool                      // reads a page of messages and marks it as read
	Extensions  map[string]jsontext.Value // x402 extensions in the 402

	requirements []x402.PaymentRequirements
	challenge    *Error
	exactFirst   *Error // the challenge with exact first; nil if there is only one scheme
	exactOnly    *Error // the challenge while payment channels are not offered; nil if there is only one scheme
}

// Reads reports whether the response can show what others wrote.
func (o *Operation) Reads() bool { return o.ReadOnly || o.Paged }

// Requirements are the payment requirements of the operation.
func (o *Operation) Requirements() []x402.PaymentRequirements { return o.requirements }

// Challenges are all that Engine.Challenge returns for the operation.
func (o *Operation) Challenges() []*Error {
	if o.exactFirst == nil {
		return []*Error{o.challenge}
	}
	return []*Error{o.challenge, o.exactFirst, o.exactOnly}
}

// Paid names the payment that a handler runs for.
type Paid struct {
	ID    uuid.UUID // of its row in the ledger
	Payer string    // see Attempt.Identity
}

// Call is one request for a paid operation.
type Call struct {
	Attempt *Attempt
	// Work runs the operation and returns the JSON of the response.
	Work func(paid Paid) store.Work
	// Reserve runs in the transaction that begins the settlement. It reserves what no other call may take before delivery. It
	// may be nil.
	Reserve func(ctx context.Context, tx *store.Tx, paid Paid) error
	// Admit runs before a payment begins, and before an undeliverable payment is redeemed. An error rejects the call. It may be
	// nil.
	Admit func() error
}

// work is what the call does in the database.
func (c *Call) work() store.Work { return c.Work(c.Attempt.paid()) }

// reserve is Reserve for the store.
func (c *Call) reserve(ctx context.Context) func(tx *store.Tx) error {
	if c.Reserve == nil {
		return nil
	}
	return func(tx *store.Tx) error { return c.Reserve(ctx, tx, c.Attempt.paid()) }
}

// admit runs Admit.
func (c *Call) admit() error {
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

// Engine takes payments through the states of the ledger.
type Engine struct {
	config      Config
	store       *store.Store
	log         *slog.Logger
	facilitator *breaker
	exact       *exact
	channels    *ChannelScheme        // nil if payment channels are not offered
	operations  map[string]*Operation // by ID
	queues      *queues
	slots       *slots
	payers      *payers
	metrics     *metrics
	unrecorded  sync.Map // of *store.Payment to unrecordedOutcome
	held        held
	wake        chan struct{} // wakes the recovery worker
	tracer      *tracing.Tracer

	responseKeys responseKeys
}

// New makes an engine. It adds the payment requirements to the operations. Without operations it needs no response key.
func New(config Config, operations []*Operation, database *store.Store, facilitator Facilitator, chain Chain, log *slog.Logger) (*Engine, error) {
	measured := newMeasuredChain(chain, config.Tracer)
	if len(operations) > 0 && len(config.ResponseKeys) == 0 {
		return nil, errNoResponseKey
	}
	e := &Engine{
		config: config, store: database, log: log, facilitator: newBreaker(facilitator, log), operations: map[string]*Operation{}, queues: newQueues(),
		slots: newSlots(), payers: newPayers(), wake: make(chan struct{}, 1), tracer: config.Tracer,
		responseKeys: newResponseKeys(config.ResponseKeys),
	}
	e.metrics = newMetrics(database, e.responds, config, measured.seconds)
	var err error
	of := transfers{e, measured, newSmartWallets(measured)}
	if e.exact, err = newExact(of); err != nil {
		return nil, err
	}
	if config.Authorizer != nil {
		if e.channels, err = newChannelScheme(of); err != nil {
			return nil, err
		}
	}
	for _, operation := range operations {
		e.operations[operation.ID] = operation
		e.metrics.announce(operation.ID)
		operation.Extensions[identifierExtension] = identifierOffer
		if err := e.offer(operation); err != nil {
			return nil, fmt.Errorf("payment requirements of %s: %w", operation.ID, err)
		}
	}
	return e, nil
}

// offer adds the payment requirements to an operation.
func (e *Engine) offer(operation *Operation) (err error) {
	operation.requirements = []x402.PaymentRequirements{e.exact.Requirements(operation.Price)}
	if e.channels != nil {
		exactFirst := append(slices.Clone(operation.requirements), e.channels.Requirements(operation.Price))
		if operation.exactOnly, err = e.newChallenge(operation, operation.requirements); err != nil {
			return err
		}
		if operation.exactFirst, err = e.newChallenge(operation, exactFirst); err != nil {
			return err
		}
		operation.requirements = slices.Clone(exactFirst)
		if !e.config.ExactFirst {
			slices.Reverse(operation.requirements)
		}
	}
	operation.challenge, err = e.newChallenge(operation, operation.requirements)
	return err
}

// Channels is the scheme of payment channels, nil if they are not offered.
func (e *Engine) Channels() *ChannelScheme { return e.channels }

// schemeOf returns the scheme of a payment, or nil if it is not offered.
func (e *Engine) schemeOf(payload payload) Scheme {
	switch {
	case payload.exact != nil:
		return e.exact
	case e.channels == nil:
		return nil
	case payload.channel.Payload.Type == x402.BatchDeposit:
		return e.channels
	}
	return vouchers{e.channels}
}

// Ready reports whether payments can settle now.
func (e *Engine) Ready() bool { return e.facilitator.ready() }

// Probe checks whether the facilitator responds, at most once a second.
func (e *Engine) Probe(ctx context.Context) error { return e.facilitator.probe(ctx) }

// responds reports whether the facilitator can be used, for the metrics. The circuit breaker alone would not notice that it is
// unavailable while no payment needs it.
func (e *Engine) responds() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return e.Ready() && e.Probe(ctx) == nil
}

// NewestBlock returns the number and the time of the newest block that the endpoint of the blockchain knows.
func (e *Engine) NewestBlock(ctx context.Context) (number uint64, at time.Time, err error) {
	return e.exact.chain.Newest(ctx)
}

// PaidLately reports whether this server settled a payment of the wallet in the last ten minutes.
func (e *Engine) PaidLately(wallet string) bool { return e.payers.settledLately(wallet) }

// RecentAccount returns the account of an API key whose call was paid in the last ten minutes. KeyHash is the hash as
// in [Caller].
func (e *Engine) RecentAccount(keyHash []byte) (uuid.UUID, bool) {
	return e.payers.accounts.get(string(keyHash))
}

// joinTime is how long a copy of a running payment waits for the response before it gets a 409, and a call for other calls.
const joinTime = 3 * time.Second
