package agent

import (
	"context"
	"sync/atomic"
)

// Charges sums what the calls of a context were charged, in atomic units. It is safe for concurrent use.
type Charges struct{ sum atomic.Uint64 }

// Sum returns what was charged so far.
func (c *Charges) Sum() uint64 { return c.sum.Load() }

type chargesKey struct{}

// CountCharges returns a context whose calls are counted, also those that Resolve and Chat make.
func CountCharges(ctx context.Context) (context.Context, *Charges) {
	charges := &Charges{}
	return context.WithValue(ctx, chargesKey{}, charges), charges
}

func countCharge(ctx context.Context, charged uint64) {
	if charges, ok := ctx.Value(chargesKey{}).(*Charges); ok {
		charges.sum.Add(charged)
	}
}
