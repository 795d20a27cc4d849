package channel

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// A client that has no state of its payment channel begins again: it signs a deposit with its first voucher. Official clients do so after a
// refund of everything, which makes them forget the payment channel, and after a restart, if they keep their state in memory. Such a
// voucher never fits again, and official clients follow a corrective 402 only if they can read the chain. So they are offered another
// payment channel, of the next generation: its withdraw delay is a second longer. The delay is the one part of a payment channel's id that
// the server can choose. A server that does not know their generation, after a restart or a day without calls, refuses one call before it
// offers them their newest again.

// maxGeneration is the newest generation that is offered, if the delay allows it.
const maxGeneration = 63

// lastGeneration is the newest generation that the withdraw delay allows.
func (c *Scheme) lastGeneration() uint64 {
	return min(maxGeneration, x402.MaxWithdrawDelay-c.terms.WithdrawDelay)
}

// slotOf names a client in c.generations. Newcomers have a slot for each address. The slot of an address alone is for refunds, which
// official clients ask for without an API key.
func slotOf(operation *payment.Operation, client string) string {
	if operation.Account {
		return client
	}
	return "newcomers at " + client
}

// termsFor are the terms for an operation. What a newcomer pays for its account comes on top of the suggested deposit.
func (c *Scheme) termsFor(operation *payment.Operation, generation uint64) x402.ChannelTerms {
	terms := c.terms
	terms.WithdrawDelay += generation
	if !operation.Account && terms.MinDeposit > 0 {
		terms.MinDeposit += c.engine.RegistrationPrice()
	}
	return terms
}

// Renewed implements [payment.Scheme].
func (c *Scheme) Renewed(operation *payment.Operation, client string) (x402.PaymentRequirements, bool) {
	generation, ok := c.generations.Get(slotOf(operation, client))
	if !ok {
		return x402.PaymentRequirements{}, false
	}
	return c.requirements(operation.Price, c.engine.PayTo, c.termsFor(operation, generation)), true
}

// generation is that of the payload's payment channel; 0 also if its terms are former ones.
func (v *voucher) generation() uint64 {
	return v.generationOf(v.payload.Payload.ChannelConfig.WithdrawDelay)
}

func (c *Scheme) generationOf(withdrawDelay uint64) uint64 {
	if generation := withdrawDelay - c.terms.WithdrawDelay; generation <= c.lastGeneration() { // a shorter delay wraps around
		return generation
	}
	return 0
}

// offers returns payment requirements of ours with the generation of the payload's payment channel.
func (v *voucher) offers(requirements []x402.PaymentRequirements) []x402.PaymentRequirements {
	generation := v.generation()
	if generation == 0 {
		return requirements
	}
	renewed := slices.Clone(requirements)
	for i := range renewed {
		if renewed[i].Scheme == x402.SchemeBatch {
			renewed[i].Extra = maps.Clone(renewed[i].Extra)
			renewed[i].Extra["withdrawDelay"] = v.terms.WithdrawDelay + generation
		}
	}
	return renewed
}

// offerGeneration offers a client the payment channel of a generation from now on.
func (c *Scheme) offerGeneration(slot string, generation uint64, lifetime time.Duration) {
	if generation == 0 {
		c.generations.Remove(slot)
	} else {
		c.generations.Add(slot, generation, lifetime)
	}
}

// rememberGeneration records the generation of the payment channel that the client pays from, for its next call and for a refund.
func (v *voucher) rememberGeneration() {
	v.offerGeneration(slotOf(v.a.Operation, v.a.Client), v.generation(), v.remembered())
	v.offerGeneration(v.a.Address.String(), v.generation(), lostFor)
}

// KnownAs implements [payment.Scheme].
func (c *Scheme) KnownAs(operation *payment.Operation, client, next string) {
	c.lost.Copy(client, next)
	if generation, ok := c.generations.Get(slotOf(operation, client)); ok {
		c.offerGeneration(next, generation, 2*lostFor)
	}
}

// beginsAgain reports whether this is a deposit with the first voucher of a payment channel that was charged before.
func (v *voucher) beginsAgain(channel *store.PaymentChannel) bool {
	return v.of.Type == x402.BatchDeposit && v.of.Max == v.a.Operation.Price && channel.Charged > 0
}

// lacksDeposit reports whether a client that begins again would count on money that is not in the payment channel: it takes its deposit for
// settled.
func (v *voucher) lacksDeposit(channel *store.PaymentChannel) bool {
	return int64(v.of.Deposit)-v.max() > channel.Balance-channel.Charged //nolint:gosec // at most x402.MaxChannelAmount
}

// renew offers the client the next payment channel if it begins again, or if it counts on money that was refunded: official clients add no
// deposit then. Has is as from offerNext.
func (v *voucher) renew(ctx context.Context, channel *store.PaymentChannel) (has bool) {
	if v.beginsAgain(channel) || v.of.Type == x402.BatchVoucher && v.max() > channel.Balance {
		// It lasts longer than exact is offered first: afterwards the client deposits into it, and what is left in this one is refunded.
		has, _ = v.offerNext(ctx, channel, slotOf(v.a.Operation, v.a.Client), 2*v.remembered())
	}
	return has
}

// renewRefunded offers the next payment channel to the account that the last call on a payment channel was for, after a refund of
// everything; to the newcomers at the client's address if there is none yet.
func (c *Scheme) renewRefunded(ctx context.Context, channel *store.PaymentChannel, client string) {
	voucher := channel.ID + ":" + strconv.FormatInt(channel.Charged, 10)
	row, err := c.store.Payment(ctx, channel.Network, channel.Asset, channel.Payer, voucher)
	if err == nil && row == nil {
		row, err = c.store.PaymentOfVoucher(ctx, channel.ID, channel.Payer, channel.Charged)
	}
	switch {
	case err != nil:
		return // the client needs one failed call more
	case row == nil || row.AgentID == nil:
		c.offerNext(ctx, channel, slotOf(&payment.Operation{}, client), exactFor)
		return
	}
	if agent, err := c.store.AgentByID(ctx, *row.AgentID); err == nil {
		c.lost.Remove(string(agent.KeyHash)) // it begins with a payment channel that fits
		c.offerNext(ctx, channel, string(agent.KeyHash), lostFor)
	}
}

// offerNext offers a client the payment channel after this one: of the newest generation that it has, or of the next. It returns whether
// the client has that one, and whether there is one.
func (c *Scheme) offerNext(ctx context.Context, channel *store.PaymentChannel, slot string, lifetime time.Duration) (has, ok bool) {
	all, err := c.allGenerations(ctx, channel)
	if err != nil {
		return false, false // as above
	}
	next := c.generationOf(uint64(channel.WithdrawDelay)) + 1 //nolint:gosec // positive
	for _, one := range all {
		if generation := c.generationOf(uint64(one.WithdrawDelay)); generation >= next { //nolint:gosec // positive
			next, has = generation, true
		}
	}
	if next > c.lastGeneration() {
		return false, false
	}
	c.offerGeneration(slot, next, lifetime)
	return has, true
}

// allGenerations returns the payment channels that differ from this one by their generation at most.
func (c *Scheme) allGenerations(ctx context.Context, channel *store.PaymentChannel) ([]store.PaymentChannel, error) {
	domain, config := x402.NewBatchDomain(c.engine.Network.ChainID), configOf(channel)
	var ids []string
	for generation := range c.lastGeneration() + 1 {
		config.WithdrawDelay = c.terms.WithdrawDelay + generation
		id, err := domain.ChannelID(config)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return c.store.PaymentChannelsOf(ctx, channel.Payer, ids)
}

// retire has what is left in the earlier payment channels of a client refunded, after a deposit into this one. The client cannot ask for
// it, because it lost their state.
func (v *voucher) retire(ctx context.Context, channel *store.PaymentChannel) {
	if v.generation() == 0 {
		return
	}
	all, err := v.allGenerations(ctx, channel)
	if err != nil {
		return // a later deposit does it
	}
	for _, one := range all {
		if one.WithdrawDelay >= channel.WithdrawDelay || one.State != store.PaymentChannelOpen || one.Balance-one.Charged < refundLeast ||
			one.Charged-one.Claimed < refundWorth && v.cheapRefunds.Take(v.refundsOf(), 1) > 0 {
			continue
		}
		select {
		case v.retired <- &one:
		default:
		}
	}
}

// refundRetired refunds retired payment channels until ctx ends.
func (c *Scheme) refundRetired(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case channel := <-c.retired:
			if err := c.refundOne(ctx, channel); err != nil && ctx.Err() == nil {
				c.engine.Log.WarnContext(ctx, "refund a payment channel whose payer uses another one", "error", err)
			}
		}
	}
}
