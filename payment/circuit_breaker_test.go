package payment

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
)

// silentFacilitator responds to probes only.
type silentFacilitator struct{ Facilitator }

func (silentFacilitator) Verify(ctx context.Context, _ *x402.PaymentPayload, _ x402.PaymentRequirements) (*x402.VerifyResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (silentFacilitator) Supported(context.Context) (*x402.SupportedResponse, error) {
	return &x402.SupportedResponse{}, nil
}

// TestPendingOpensNoCircuit: a facilitator whose chain is slow responds, so it is available.
func TestPendingOpensNoCircuit(t *testing.T) {
	t.Parallel()
	b := newBreaker(silentFacilitator{}, slog.New(slog.DiscardHandler))
	for range 3 * failuresToOpen {
		_, err := b.Settle(t.Context(), func(context.Context, Facilitator) (*x402.SettleResponse, error) {
			return nil, &x402.UnknownOutcome{Reason: x402.ReasonSettlementPending, Err: errors.New("pending")}
		})
		if unknown, ok := errors.AsType[*x402.UnknownOutcome](err); !ok || unknown.NotSent || !b.ready() {
			t.Fatalf("settle returns %v, ready %v, want an unknown outcome and ready", err, b.ready())
		}
	}
}

// TestHangingUpOpensNoCircuit: callers that hang up while the facilitator works do not make it unavailable for others. Calls that it
// does not answer do.
func TestHangingUpOpensNoCircuit(t *testing.T) {
	t.Parallel()
	verify := func(ctx context.Context, f Facilitator) (*x402.VerifyResponse, error) {
		return f.Verify(ctx, nil, x402.PaymentRequirements{})
	}
	for _, test := range []struct {
		name  string
		end   func(ctx context.Context) (context.Context, context.CancelFunc)
		ready bool
	}{
		{"callers hang up", func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(5*time.Millisecond, cancel)
			return ctx, cancel
		}, true},
		{"no response in time", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 5*time.Millisecond)
		}, false},
	} {
		b := newBreaker(silentFacilitator{}, slog.New(slog.DiscardHandler))
		for range 3 * failuresToOpen {
			ctx, cancel := test.end(t.Context())
			if _, err := b.Verify(ctx, verify); err == nil || errors.Is(err, errNoFacilitator) {
				t.Errorf("%s: verify returns %v", test.name, err)
			}
			cancel()
		}
		if b.ready() != test.ready {
			t.Errorf("%s: ready %v, want %v", test.name, b.ready(), test.ready)
		}
	}
}
