package channel

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// scanEvery is how often a server looks for events, and scanPause how long nobody reads after another server has begun: shorter, so that
	// a server that is a little early does not miss its turn.
	scanEvery = 5 * time.Second
	scanPause = 4 * time.Second
	// scanBlocks are read at once, and then recorded. scanOverlap are read again, because a reorganisation may have moved events: eight
	// minutes of Base.
	scanBlocks  = 2000
	scanOverlap = 256
	// pieceTimeout limits reading scanBlocks, and readAtOnce how many changed payment channels are read at the same time.
	pieceTimeout = 15 * time.Second
	readAtOnce   = 8
)

var (
	withdrawals = []string{x402.EventWithdrawInitiated, x402.EventWithdrawFinalized}
	// allEvents are read by a server that has just started, and when the scan has gone back: the database may be a backup, which lacks them.
	allEvents = append([]string{x402.EventClaimed, x402.EventRefunded}, withdrawals...)
)

// scan is what this server knows of the scan of the blockchain, which is the database's. knownAt is nil until the server has read once.
type scan struct {
	looking singleflight.Group
	block   atomic.Int64
	knownAt atomic.Pointer[time.Time]
}

// scanAge is how long ago the newest block was mined up to which all withdrawals are known.
func (c *Scheme) scanAge() time.Duration {
	if at := c.scan.knownAt.Load(); at != nil {
		return c.store.Now().Sub(*at)
	}
	return time.Since(c.started)
}

// outdated reports whether a withdrawal that is not known may have begun half of a withdraw delay ago. The other half is left to claim.
func (c *Scheme) outdated() bool { return c.scanAge() > c.WithdrawDelay/2 }

// informed makes sure that withdrawals are known well enough to charge vouchers. The error is an *Error.
func (c *Scheme) informed(ctx context.Context) error {
	known := func() bool { return c.scan.knownAt.Load() != nil && !c.outdated() }
	if known() {
		return nil
	}
	if err := c.look(ctx); err != nil || !known() {
		return payment.Unavailable("what happened to payment channels on the blockchain is not known", 2, err)
	}
	return nil
}

// look is scanOn for all callers at once. A caller that hangs up does not end it.
func (c *Scheme) look(ctx context.Context) error {
	looking := c.scan.looking.DoChan("", func() (any, error) {
		ctx, cancel := payment.Detach(ctx)
		defer cancel()
		return nil, c.scanOn(ctx)
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case looked := <-looking:
		return looked.Err
	}
}

// scanOn reads the events of payment channels since the last scan of any server, unless another server does so. If the endpoint or the
// database fails, the next scan goes on where this one ended.
func (c *Scheme) scanOn(ctx context.Context) error {
	kinds, pause := withdrawals, scanPause
	isNew := c.scan.knownAt.Load() == nil
	if isNew {
		kinds, pause = allEvents, 0
	}
	at, err := c.store.TakeScan(ctx, c.network, pause)
	if err == nil && at == nil {
		at, err = c.beginScan(ctx)
	}
	if err != nil {
		return err
	}
	if at.Block < c.scan.block.Swap(at.Block) { // the database is a backup now
		c.scan.knownAt.Store(nil)
		return c.scanOn(ctx)
	}
	if !isNew {
		c.scan.knownAt.Store(&at.KnownAt)
	}
	if !at.Taken {
		return nil
	}
	newest, minedAt, err := c.engine.Chain.Newest(ctx)
	if err != nil {
		return err
	}
	next := min(uint64(at.Block), newest) //nolint:gosec // not negative
	for next -= min(next, scanOverlap); ; {
		last := min(next+scanBlocks-1, newest)
		if err := c.readEvents(ctx, next, last, kinds); err != nil {
			return err
		}
		done := &minedAt
		if last < newest {
			done = nil
		}
		knownAt, err := c.store.Scanned(ctx, c.network, int64(last), done) //nolint:gosec // the number of a block
		switch {
		case err != nil:
			return err
		case last == newest:
			c.scan.knownAt.Store(&knownAt)
			return nil
		}
		next = last + 1
	}
}

// beginScan begins with what happened within a withdraw delay: a withdrawal that began before has ended.
func (c *Scheme) beginScan(ctx context.Context) (*store.PaymentChannelScan, error) {
	block, err := c.engine.Chain.BlockAt(ctx, c.store.Now().Add(-c.WithdrawDelay))
	if err != nil {
		return nil, err
	}
	if err := c.store.BeginScan(ctx, c.network, int64(block)); err != nil { //nolint:gosec // the number of a block
		return nil, err
	}
	return c.store.TakeScan(ctx, c.network, 0)
}

// readEvents records the state on the chain of the payment channels that have events in these blocks.
func (c *Scheme) readEvents(ctx context.Context, first, last uint64, kinds []string) error {
	ctx, cancel := context.WithTimeout(ctx, pieceTimeout)
	defer cancel()
	var events store.ChannelEvents
	for event, err := range c.engine.Chain.ChannelEvents(ctx, first, last, kinds...) {
		if err != nil {
			return err
		}
		var withdraws *bool
		var claimed *int64
		switch event.Kind {
		case x402.EventWithdrawInitiated, x402.EventWithdrawFinalized:
			withdraws = new(event.Kind == x402.EventWithdrawInitiated)
		case x402.EventClaimed:
			claimed = new(int64(event.Claimed)) //nolint:gosec // at most x402.MaxChannelAmount
		}
		events.IDs, events.Withdraws = append(events.IDs, event.ID), append(events.Withdraws, withdraws)
		events.Claimed = append(events.Claimed, claimed)
	}
	if len(events.IDs) == 0 {
		return nil
	}
	changed, err := c.store.ChangedChannels(ctx, c.network, c.asset, events)
	if err != nil {
		return err
	}
	reading, ctx := errgroup.WithContext(ctx)
	reading.SetLimit(readAtOnce)
	for i := range changed {
		reading.Go(func() error {
			found, err := c.chainState(ctx, changed[i].ID)
			if err == nil {
				_, err = c.synced(ctx, &changed[i], found)
			}
			return err
		})
	}
	return reading.Wait()
}
