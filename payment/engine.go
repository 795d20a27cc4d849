package payment

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/store"
)

// Engine takes payments through the states of the ledger. Schemes use its fields too.
type Engine struct {
	Config
	Store       *store.Store
	Log         *slog.Logger
	Facilitator *Breaker
	Chain       Chain

	schemes    []Scheme
	operations map[string]*Operation // by ID
	contracts  Recent[string, bool]  // whether an address, in lower case, is a contract
	queues     *queues
	admission  *admission
	payers     *payers
	strangers  *strangers
	underWay   *underWay
	metrics    *metrics
	unrecorded sync.Map // of *store.Payment to unrecordedOutcome
	held       held
	wake       chan struct{}  // wakes the recovery worker
	failing    rate.Sometimes // a line of the log about the database is enough in a minute
}

// New makes an engine. It takes payments when it has schemes and operations: see Offer.
func New(config Config, database *store.Store, facilitator Facilitator, chain Chain, log *slog.Logger) *Engine {
	measured := newMeasuredChain(chain)
	e := &Engine{
		Config: config, Store: database, Log: log, Facilitator: newBreaker(facilitator, log), Chain: measured,
		operations: map[string]*Operation{},
		contracts:  NewRecent[string, bool](maxWallets), queues: newQueues(), admission: newAdmission(), payers: newPayers(),
		strangers: newStrangers(), underWay: &underWay{amounts: map[string]map[string]*amountUnderWay{}}, wake: make(chan struct{}, 1),
		failing: rate.Sometimes{Interval: time.Minute},
	}
	e.metrics = newMetrics(database, e.responds, measured.seconds)
	return e
}

// Offer sets the operations, and the schemes in the order in which they are offered. It adds the payment requirements to the operations.
func (e *Engine) Offer(operations []*Operation, schemes ...Scheme) error {
	e.schemes = schemes
	for _, operation := range operations {
		e.operations[operation.ID] = operation
	}
	for _, operation := range operations {
		e.metrics.announce(operation.ID)
		operation.Extensions[identifierExtension] = identifierOffer
		if err := e.prepareChallenges(operation); err != nil {
			return fmt.Errorf("payment requirements of %s: %w", operation.ID, err)
		}
	}
	return nil
}

// RegistrationPrice is what an account costs: the sum of the operations that need none.
func (e *Engine) RegistrationPrice() (sum uint64) {
	for _, operation := range e.operations {
		if !operation.Account {
			sum += operation.Price
		}
	}
	return sum
}

// Ready reports whether payments can settle now.
func (e *Engine) Ready() bool { return e.Facilitator.ready() }

// Probe checks whether the facilitator responds, at most once a second.
func (e *Engine) Probe(ctx context.Context) error { return e.Facilitator.probe(ctx) }

// responds reports whether the facilitator can be used, for the metrics. The circuit breaker alone would not notice that it is
// unavailable while no payment needs it.
func (e *Engine) responds() bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	return e.Ready() && e.Probe(ctx) == nil
}

// Collectors are the metrics of the engine and its schemes.
func (e *Engine) Collectors() []prometheus.Collector {
	collectors := e.metrics.collectors()
	for _, scheme := range e.schemes {
		collectors = append(collectors, scheme.Collectors()...)
	}
	return collectors
}
