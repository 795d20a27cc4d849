// Package channel is the x402 scheme "batch-settlement": a payer deposits into a payment channel on the chain once, and then pays for each
// call with a voucher, a signed sum. The ledger charges vouchers in the transaction of the call; claims bring them to the chain later.
package channel

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Config are the terms of payment channels.
type Config struct {
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

// Scheme is the scheme of payment channels. A payment is a voucher or a deposit, which brings a voucher.
type Scheme struct {
	Config
	engine      *payment.Engine
	store       *store.Store
	network     string // its id
	asset       string // in lower case
	terms       x402.ChannelTerms
	checker     x402.BatchChecker
	keys        map[string]*ecdsa.PrivateKey // of our authorizers, also of former ones, by address in lower case
	unsupported atomic.Bool                  // the facilitator says that it does not settle payment channels
	started     time.Time
	scan        scan
	metrics     *metrics
	failing     rate.Sometimes // a line of the log about the database is enough in a minute
	unreadable  rate.Sometimes // and about the blockchain

	charged      payment.Recent[string, uint64]   // what payment channels were charged lately, by id; 0 if this is not certain
	lost         payment.Recent[string, struct{}] // clients whose vouchers do not fit, since the last one that did: see Rank
	behind       payment.Recent[string, bool]     // payment channels, by id, whose vouchers do not fit: see isBehind
	unclaimed    atomic.Int64                     // in all: what the worker read from the ledger, and what was charged here since
	generations  payment.Recent[string, uint64]   // of the payment channels that clients are offered, by slot: see generation.go
	retired      chan *store.PaymentChannel       // to be refunded: see retire
	cheapRefunds payment.Rates
	payouts      sync.Map // of payees, in lower case, to whom something may be due that is claimed
}

// New makes the scheme.
func New(engine *payment.Engine, config Config) (*Scheme, error) {
	checker, err := x402.NewBatchChecker(engine.Network)
	if err != nil {
		return nil, err
	}
	seconds := int64(config.WithdrawDelay / time.Second)
	if seconds < x402.MinWithdrawDelay || seconds > x402.MaxWithdrawDelay {
		return nil, fmt.Errorf("the withdraw delay of payment channels is %s; it must be from %d to %d seconds",
			config.WithdrawDelay, x402.MinWithdrawDelay, x402.MaxWithdrawDelay)
	}
	keys := map[string]*ecdsa.PrivateKey{}
	for _, key := range append([]*ecdsa.PrivateKey{config.Authorizer}, config.FormerAuthorizers...) {
		keys[strings.ToLower(evm.PubkeyToAddress(key.PublicKey).Hex())] = key
	}
	if keys[strings.ToLower(engine.PayTo)] != nil {
		return nil, errors.New("the payee's key cannot be the authorizer's key; use a new key that holds no money")
	}
	authorizer := evm.PubkeyToAddress(config.Authorizer.PublicKey).Hex()
	c := &Scheme{
		Config: config, engine: engine, store: engine.Store, network: engine.Network.ID, asset: strings.ToLower(engine.Network.Asset),
		terms: x402.ChannelTerms{
			ReceiverAuthorizer: authorizer, MinDeposit: config.MinDeposit, WithdrawDelay: uint64(seconds), //nolint:gosec // positive
		},
		checker: checker, keys: keys, started: time.Now(),
		charged: payment.NewRecent[string, uint64](payment.MaxPayers), lost: payment.NewRecent[string, struct{}](maxLost),
		behind:      payment.NewRecent[string, bool](maxLost),
		generations: payment.NewRecent[string, uint64](maxLost), retired: make(chan *store.PaymentChannel, maxRetired),
		failing: rate.Sometimes{Interval: time.Minute}, unreadable: rate.Sometimes{Interval: time.Minute},
		cheapRefunds: payment.NewRates(rate.Every(time.Hour/cheapRefunds), cheapRefunds),
	}
	c.metrics = newMetrics(c)
	c.mayPayOut(strings.ToLower(engine.PayTo)) // a claim before a restart may not be paid out
	return c, nil
}

// authorizers are the addresses whose keys this server has.
func (c *Scheme) authorizers() []string { return slices.Sorted(maps.Keys(c.keys)) }

// Requirements implements [payment.Scheme].
func (c *Scheme) Requirements(operation *payment.Operation) x402.PaymentRequirements {
	return c.requirements(operation.Price, c.engine.PayTo, c.termsFor(operation, 0))
}

// requirementsOf returns payment requirements with the terms of a payment channel, which may be former ones of ours.
func (c *Scheme) requirementsOf(channel *store.PaymentChannel) x402.PaymentRequirements {
	return c.requirements(1, channel.PayTo, x402.ChannelTerms{ReceiverAuthorizer: channel.ReceiverAuthorizer,
		WithdrawDelay: uint64(channel.WithdrawDelay)}) //nolint:gosec // positive
}

func (c *Scheme) requirements(price uint64, payee string, terms x402.ChannelTerms) x402.PaymentRequirements {
	return c.engine.Network.BatchRequirements(price, payee, payment.MaxTimeoutSeconds, terms)
}

// Rank implements [payment.Scheme]. A client that lost the state of its payment channel and cannot read it from the chain would
// send vouchers that do not fit for good. It is therefore offered exact first, until a voucher fits again.
func (c *Scheme) Rank(price uint64, client string) payment.Rank {
	_, lost := c.lost.Get(client)
	switch {
	case !c.offered():
		return payment.Withheld
	case lost, client == payment.ExactOnly, c.outdated(), c.atMaxUnclaimed(price):
		return payment.Fallback
	}
	return payment.Preferred
}

// Payment implements [payment.Scheme].
func (c *Scheme) Payment(attempt *payment.Attempt, payload x402.Payment) payment.Payment {
	batch, ok := payload.(*x402.BatchPayment)
	if !ok {
		return nil
	}
	v := &voucher{Scheme: c, a: attempt, payload: batch}
	if batch.Payload.Type == x402.BatchDeposit {
		return &deposit{v}
	}
	return v
}

// offered reports whether payment channels are offered: unless the facilitator has said that it does not settle them.
func (c *Scheme) offered() bool { return !c.unsupported.Load() }

// checkSupport asks the facilitator whether it settles payment channels on our network, and returns false if it did not say.
func (c *Scheme) checkSupport(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, payment.ChainTimeout)
	defer cancel()
	supported, err := c.engine.Facilitator.Supported(asking)
	lists := func(scheme string) bool {
		return slices.ContainsFunc(supported.Kinds, func(kind x402.SupportedKind) bool {
			return kind.X402Version == x402.Version && kind.Scheme == scheme && kind.Network == c.network
		})
	}
	if err != nil || !lists(x402.SchemeBatch) && !lists(x402.SchemeExact) { // a list without exact is not what it settles
		return false
	}
	unsupported := !lists(x402.SchemeBatch)
	switch was := c.unsupported.Swap(unsupported); {
	case unsupported && !was:
		c.engine.Log.ErrorContext(ctx, "payment channels are not offered: the facilitator's /supported does not list batch-settlement on "+
			"this network", "network", c.network)
	case !unsupported && was:
		c.engine.Log.InfoContext(ctx, "payment channels are offered again", "network", c.network)
	}
	return true
}
