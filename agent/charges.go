package agent

import (
	"context"
	"sync/atomic"
)

type chargesKey struct{}

// CountCharges returns a context, and the sum of what its calls are charged, in atomic units. Calls of Resolve and Chat count.
func CountCharges(ctx context.Context) (context.Context, *atomic.Uint64) {
	charges := &atomic.Uint64{}
	return context.WithValue(ctx, chargesKey{}, charges), charges
}

func countCharge(ctx context.Context, charged uint64) {
	if charges, ok := ctx.Value(chargesKey{}).(*atomic.Uint64); ok {
		charges.Add(charged)
	}
}
