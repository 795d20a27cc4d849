package payment

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
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

// unreachable is a facilitator that responds to nothing.
type unreachable struct{ Facilitator }

func (unreachable) Supported(context.Context) (*x402.SupportedResponse, error) {
	return nil, errors.New("connection refused")
}

// TestSlowSettlement: a settlement is waited for as long as the facilitator responds to probes, and is given up soon when it does not.
func TestSlowSettlement(t *testing.T) {
	t.Parallel()
	settle := func(ctx context.Context, _ Facilitator) (*x402.SettleResponse, error) {
		select {
		case <-ctx.Done():
			return nil, &x402.UnknownOutcome{Err: ctx.Err()}
		case <-time.After(time.Minute):
			return &x402.SettleResponse{Success: true}, nil
		}
	}
	synctest.Test(t, func(t *testing.T) {
		slow := newBreaker(silentFacilitator{}, slog.New(slog.DiscardHandler))
		if settled, err := slow.Settle(t.Context(), settle); err != nil || !settled.Success {
			t.Errorf("a settlement of a minute returns %+v, %v", settled, err)
		}
		gone, began := newBreaker(unreachable{}, slog.New(slog.DiscardHandler)), time.Now()
		for range failuresToOpen {
			if _, err := gone.Settle(t.Context(), settle); err == nil || time.Since(began) > failuresToOpen*10*time.Second {
				t.Errorf("after %s a facilitator that is gone returns %v", time.Since(began), err)
			}
		}
		if gone.ready() || gone.Available() == nil {
			t.Error("a facilitator that is gone is available")
		}
	})
}
