package payment

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// lostFor is how long a client that lost the state of its payment channel is offered exact first.
	lostFor = 24 * time.Hour
	maxLost = 10_000 // about 2 MB
	// exactFor is how long a client is offered exact first after a voucher was refused because too much is unclaimed, and an address
	// after that of a client without an account did not fit.
	exactFor = time.Minute
	// Of channels that the ledger does not know, adoptionsPerSecond are looked up on the chain, each once in adoptionPause:
	// anybody can sign a voucher of a channel that does not exist. One client has a share of them.
	adoptionsPerSecond = 10
	adoptionBurst      = 20
	adoptionShare      = 0.5
	adoptionShareBurst = 3
	adoptionPause      = time.Minute
)

// unclaimed is what all payment channels were charged and what is not claimed. The worker reads it from the ledger every
// claimEvery; what this server charges meanwhile is added. Other servers may charge more in this time.
type unclaimed struct{ sum atomic.Int64 }

func (u *unclaimed) charged(amount int64) { u.sum.Add(amount) }

// reached reports whether a price on top exceeds the bound. 0 is no bound.
func (u *unclaimed) reached(bound, price uint64) bool {
	return bound > 0 && uint64(max(u.sum.Load(), 0))+price > bound //nolint:gosec // not negative
}

// maxUnclaimed is Config.MaxUnclaimed for comparisons.
func (c *ChannelScheme) maxUnclaimed() int64 {
	if c.engine.config.MaxUnclaimed == 0 {
		return math.MaxInt64
	}
	return int64(min(c.engine.config.MaxUnclaimed, x402.MaxChannelAmount)) //nolint:gosec // fits
}

// barred returns the 402 for a voucher or a deposit while no payment channel is charged, or nil.
func (c *ChannelScheme) barred(a *Attempt) error {
	switch {
	case !c.offered():
		refused := c.engine.refused(a.operation, "No matching payment requirements",
			"the payment facilitator does not settle payment channels and nothing was charged; pay with the entry of accepts")
		refused.Required.Accepts = a.operation.exactOnly.Required.Accepts
		return refused
	case c.unclaimed.reached(c.engine.config.MaxUnclaimedTotal, a.operation.Price):
		return c.unclaimedTooMuch(a, "all payment channels")
	}
	return nil
}

// unclaimedTooMuch returns the 402 for a voucher that fits, but would raise what is not claimed above a bound. Clients that can
// go on with exact, which it offers first.
func (c *ChannelScheme) unclaimedTooMuch(a *Attempt, of string) error {
	if _, lost := c.lost.get(a.client); !lost {
		c.lost.add(a.client, struct{}{}, exactFor)
	}
	refused := c.engine.refused(a.operation, x402.ReasonBatchChannelBusy, "too much of what "+of+
		" was charged is not claimed on the blockchain yet, and nothing was charged now; pay with scheme exact, or send the same payment again in a minute")
	refused.Required.Accepts = a.operation.exactFirst.Required.Accepts
	return refused
}

// wasCharged records that the payment channel of an attempt was charged.
func (c *ChannelScheme) wasCharged(a *Attempt) {
	c.engine.payers.settled(a.checked.Payer, a.caller)
	c.charged.add(a.channel.ChannelID, a.channel.Max, paidFor)
	c.inStep(a)
}

// inStep records that the client has the state of its payment channel, or gets it with this response.
func (c *ChannelScheme) inStep(a *Attempt) { c.lost.entries.Remove(a.client) }

// chargedLately reports whether a payment channel was charged lately.
func (c *ChannelScheme) chargedLately(id string) bool {
	_, ok := c.charged.get(id)
	return ok
}

// next reports whether the voucher is for the next amount, as far as this server knows. Another server may have charged the payment
// channel since.
func (c *ChannelScheme) next(a *Attempt) bool {
	charged, ok := c.charged.get(a.channel.ChannelID)
	return ok && charged != 0 && charged+a.operation.Price == a.channel.Max
}

// challenge returns the 402 for a request without payment: see Engine.Challenge.
func (c *ChannelScheme) challenge(operation *Operation, client string) *Error {
	_, lost := c.lost.get(client)
	switch {
	case !c.offered():
		return operation.exactOnly
	case lost, c.unclaimed.reached(c.engine.config.MaxUnclaimedTotal, operation.Price):
		return operation.exactFirst
	}
	return operation.challenge
}

// preferExact offers the client of an attempt exact first from now on. A client without an account is known by its address, which it
// may share with others: they are offered payment channels again soon.
func (c *ChannelScheme) preferExact(a *Attempt) {
	lifetime := lostFor
	if a.caller == nil {
		lifetime = exactFor
	}
	c.lost.add(a.client, struct{}{}, lifetime)
}

// offered reports whether payment channels are offered: unless the facilitator has said that it does not settle them.
func (c *ChannelScheme) offered() bool { return !c.unsupported.Load() }

// checkSupport asks the facilitator whether it settles payment channels on our network, and returns false if it did not respond.
func (c *ChannelScheme) checkSupport(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	supported, err := c.engine.facilitator.Supported(asking)
	if err != nil {
		return false
	}
	unsupported := !slices.ContainsFunc(supported.Kinds, func(kind x402.SupportedKind) bool {
		return kind.X402Version == x402.Version && kind.Scheme == x402.SchemeBatch && kind.Network == c.engine.config.Network.ID
	})
	switch was := c.unsupported.Swap(unsupported); {
	case unsupported && !was:
		c.engine.log.ErrorContext(ctx, "payment channels are not offered: the facilitator's /supported does not list batch-settlement on this network",
			"network", c.engine.config.Network.ID)
	case !unsupported && was:
		c.engine.log.InfoContext(ctx, "payment channels are offered again", "network", c.engine.config.Network.ID)
	}
	return true
}

// adoptions limits how often the chain is asked for channels that the ledger does not know.
type adoptions struct {
	tried  recent[string, struct{}]
	rate   *rate.Limiter
	shares clientRates
}

func newAdoptions() adoptions {
	return adoptions{newRecent[string, struct{}](maxLost), rate.NewLimiter(adoptionsPerSecond, adoptionBurst), newClientRates(adoptionShare, adoptionShareBurst, adoptionPause)}
}

// allow reports whether the client may have a channel looked up now.
func (a *adoptions) allow(client string) bool { return a.shares.allow(client) && a.rate.Allow() }

// clientRates are token buckets by client: see Engine.Challenge.
type clientRates struct {
	perSecond rate.Limit
	burst     int
	full      time.Duration // in which an empty bucket is full again
	buckets   recent[string, *rate.Limiter]
}

func newClientRates(perSecond rate.Limit, burst int, full time.Duration) clientRates {
	return clientRates{perSecond, burst, full, newRecent[string, *rate.Limiter](maxLost)}
}

func (r clientRates) allow(client string) bool {
	bucket, ok := r.buckets.get(client)
	if !ok {
		bucket = rate.NewLimiter(r.perSecond, r.burst)
		r.buckets.add(client, bucket, r.full)
	}
	return bucket.Allow()
}

// adopt looks on the chain for a payment channel that the ledger does not know: the payer may have deposited on its own, or the
// database was restored from a backup. Only what was claimed counts as charged. It returns store.ErrStalePayment if the channel
// is in the ledger now, a corrective 402 if the voucher does not fit, and nil if there is no such channel.
func (c *ChannelScheme) adopt(ctx context.Context, a *Attempt) error {
	id := a.channel.ChannelID
	if _, again := c.adoptions.tried.get(id); again || !c.adoptions.allow(a.client) {
		return nil
	}
	c.adoptions.tried.add(id, struct{}{}, adoptionPause)
	asking, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	found, _, err := c.chain.Channel(asking, id)
	if err != nil || found.Balance == 0 {
		return nil //nolint:nilerr // the payer gets the 402 for an unknown channel, and can send a deposit
	}
	channel := newChannel(a, found)
	if bad, ok := errors.AsType[*x402.Invalid](a.channel.Fits(sumsOf(channel), a.operation.Price)); ok {
		c.adoptions.tried.entries.Remove(id) // a client that follows the 402 comes back with a voucher that fits
		return c.corrective(a, channel, bad)
	}
	if channel.Claimed > 0 {
		c.claimedElsewhere(ctx, channel)
	}
	if err := c.engine.store.AdoptPaymentChannel(ctx, channel); err != nil {
		return err
	}
	return store.ErrStalePayment
}

// synced records the state of a payment channel on the chain, and returns the payment channel, or nil if it has changed since.
func (c *ChannelScheme) synced(ctx context.Context, channel *store.PaymentChannel, found x402.Channel) (*store.PaymentChannel, error) {
	now, err := c.engine.store.SyncPaymentChannel(ctx, channel, mirrorOf(found))
	if now != nil && now.Claimed > channel.Claimed { // the response to the claim was lost, so nothing was paid out
		c.payouts.add(now.PayTo)
	}
	if now != nil && now.Signature == "" && now.Claimed > channel.Charged {
		c.claimedElsewhere(ctx, now)
	}
	return now, err
}

// claimedElsewhere reports that more of a payment channel is claimed than this ledger has charged.
func (c *ChannelScheme) claimedElsewhere(ctx context.Context, channel *store.PaymentChannel) {
	c.engine.metrics.foreign.Inc()
	c.engine.log.ErrorContext(ctx, "more is claimed from a payment channel than this database has charged", // restored from a backup, or a shared key
		"payment_channel_id", channel.ID, "claimed", channel.Claimed)
}
