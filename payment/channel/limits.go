package channel

import (
	"context"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// lostFor is how long a client that lost the state of its payment channel is offered exact first.
	lostFor = 24 * time.Hour
	maxLost = 10_000 // about 2 MB
	// exactFor is how long exact is offered first to a client whose voucher was refused because too much is unclaimed, or whose wallet is
	// below its deposit, or to the address of a client without an account, or to a client that is behind its payment channel.
	exactFor = time.Minute
)

// atMaxUnclaimed reports whether a price on top of what is unclaimed exceeds MaxUnclaimedTotal. Other servers may charge more meanwhile.
func (c *Scheme) atMaxUnclaimed(price uint64) bool {
	return c.MaxUnclaimedTotal > 0 && uint64(max(c.unclaimed.Load(), 0))+price > c.MaxUnclaimedTotal //nolint:gosec // not negative
}

// barred returns the error for a voucher or a deposit while no payment channel is charged, or nil. It may read the blockchain: see
// informed.
func (v *voucher) barred(ctx context.Context) error {
	switch {
	case !v.offered():
		return v.refusedFor("No matching payment requirements",
			"the payment facilitator does not settle payment channels and nothing was charged; pay with the entry of accepts")
	case v.atMaxUnclaimed(v.a.Operation.Price):
		return v.unclaimedTooMuch("all payment channels")
	}
	return v.informed(ctx)
}

// unclaimedTooMuch returns the 402 for a voucher that fits, but would raise what is not claimed above a bound. Clients that can
// go on with exact, which it offers first.
func (v *voucher) unclaimedTooMuch(of string) error {
	v.exactForNow()
	return v.refusedFor(x402.ReasonBatchChannelBusy, "too much of what "+of+
		" was charged is not claimed on the blockchain yet, and nothing was charged now; pay with scheme exact, or send the same payment "+
		"again in a minute")
}

// exactForNow offers the client exact first for a minute, unless it is offered that for longer.
func (v *voucher) exactForNow() {
	if _, lost := v.lost.Get(v.a.Client); !lost {
		v.lost.Add(v.a.Client, struct{}{}, exactFor)
	}
}

// refusedFor returns a 402 with the payment requirements in the order for the client.
func (v *voucher) refusedFor(reason, message string) error {
	refused := v.engine.Refused(v.a.Operation, reason, message)
	refused.Required.Accepts = v.engine.Challenge(v.a.Operation, v.a.Client).Required.Accepts
	return refused
}

// inStep records that the client has the state of its payment channel, or gets it with this response.
func (v *voucher) inStep() {
	v.lost.Remove(v.a.Client)
	v.behind.Remove(v.of.ChannelID)
}

// chargedLately reports whether a payment channel was charged lately.
func (c *Scheme) chargedLately(id string) bool {
	_, ok := c.charged.Get(id)
	return ok
}

// next reports whether the voucher is for the next amount, as far as this server knows. Another server may have charged the payment
// channel since.
func (v *voucher) next() bool {
	charged, ok := v.charged.Get(v.of.ChannelID)
	return ok && charged != 0 && charged+v.a.Operation.Price == v.of.Max
}

// preferExact offers the client exact first from now on. A client without an account is known by its address, which it
// may share with others: they are offered payment channels again soon.
func (v *voucher) preferExact() {
	v.lost.Add(v.a.Client, struct{}{}, v.remembered())
}

// isBehind offers the client exact first for a minute: it has a state of its payment channel, and usually another of its calls was charged
// at the same time. If its voucher does not fit after that minute either, its state is lost, and isBehind returns true. Other payment
// channels of the client may fit meanwhile.
func (v *voucher) isBehind() (lost bool) {
	missed, now := v.behind.Get(v.of.ChannelID)
	if !now { // else they are those calls
		v.behind.Add(v.of.ChannelID, true, exactFor)
		v.lost.Add(v.a.Client, struct{}{}, exactFor)
	}
	return missed && !now
}

// remembered is how long what is known of the client's payment channel counts.
func (v *voucher) remembered() time.Duration {
	if v.a.Caller == nil {
		return exactFor
	}
	return lostFor
}

// synced records the state of a payment channel on the chain, and returns the payment channel, or nil if it has changed since.
func (c *Scheme) synced(ctx context.Context, channel *store.PaymentChannel, found x402.Channel) (*store.PaymentChannel, error) {
	now, err := c.store.SyncPaymentChannel(ctx, channel, MirrorOf(found))
	if now != nil && now.Claimed > channel.Claimed { // the response to the claim was lost, so nothing was paid out
		c.mayPayOut(now.PayTo)
	}
	if now != nil && now.Signature == "" && now.Claimed > channel.Charged {
		c.claimedElsewhere(ctx, now)
	}
	return now, err
}

// claimedElsewhere reports that more of a payment channel is claimed than this ledger has charged.
func (c *Scheme) claimedElsewhere(ctx context.Context, channel *store.PaymentChannel) {
	c.metrics.foreign.Inc()
	c.engine.Log.ErrorContext(ctx, "more is claimed from a payment channel than this database has charged",
		// restored from a backup, or a shared key
		"payment_channel_id", channel.ID, "claimed", channel.Claimed)
}
