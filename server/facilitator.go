package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/parley-chat/parley/x402"
)

// Facilitator checks payments against the chain and settles them: x402.Facilitator, or the official SDK's. An error of
// Settle says that the outcome is not known.
type Facilitator interface {
	Supported(context.Context) (*x402.SupportedResponse, error)
	Verify(context.Context, *x402.PaymentPayload, x402.PaymentRequirements) (*x402.VerifyResponse, error)
	Settle(context.Context, *x402.PaymentPayload, x402.PaymentRequirements) (*x402.SettleResponse, error)
}

const (
	// A call may be as slow as a block, but whoever has heard nothing for this long asks whether anybody is there.
	silence = 600 * time.Millisecond
	// probeTimeout is how long that question waits: a caller is to be told within two seconds that nobody is.
	probeTimeout = time.Second
	// probeEvery is how often a long call asks again.
	probeEvery = 5 * time.Second
	// After this many failures in a row nobody is asked for a while.
	failuresToOpen = 5
	openFor        = 2 * time.Second
)

// errAway means that the facilitator is not there.
var errAway = errors.New("the facilitator is away")

// errBackOff means that the facilitator has asked to be left alone for a while.
var errBackOff = errors.New("the facilitator answers 429")

// guard stands before the facilitator. It notices when nobody is there, so that callers are answered soon instead of
// after a settlement's whole patience, and asks less often then.
type guard struct {
	Facilitator
	breaker *gobreaker.CircuitBreaker[any]

	mu     sync.Mutex
	probed time.Time
	away   error     // what the last probe found
	quiet  time.Time // until when the facilitator wants to be left alone (429)
}

func newGuard(facilitator Facilitator, log *slog.Logger) *guard {
	return &guard{Facilitator: facilitator, breaker: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Timeout:     openFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		// Only silence counts. Somebody who answers is there, and no payer can close the door for the others with a payment
		// that makes the facilitator stumble.
		IsSuccessful: func(err error) bool { return err == nil || errors.As(err, new(*x402.StatusError)) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			log.Warn("facilitator", "was", from.String(), "is", to.String()) // closed: it answers; open: it is away
		},
	})}
}

// ready tells whether it makes sense to ask now.
func (g *guard) ready() bool { return g.breaker.State() != gobreaker.StateOpen && g.backOff() == 0 }

// backOff is how long the facilitator still wants to be left alone.
func (g *guard) backOff() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(time.Until(g.quiet), 0)
}

// Settle asks the facilitator to settle. Every error is an *x402.UnknownOutcome.
func (g *guard) Settle(ctx context.Context, payload *x402.PaymentPayload, offer x402.PaymentRequirements) (*x402.SettleResponse, error) {
	if wait := g.backOff(); wait > 0 {
		return nil, &x402.UnknownOutcome{NotSent: true, RetryAfter: wait, Err: errBackOff}
	}
	settled, err := guarded(ctx, g, func(ctx context.Context) (*x402.SettleResponse, error) {
		return g.Facilitator.Settle(ctx, payload, offer)
	})
	var unknown *x402.UnknownOutcome
	if err != nil && !errors.As(err, &unknown) {
		refused := errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
		err = &x402.UnknownOutcome{NotSent: refused, Err: err}
	}
	if unknown != nil && unknown.RetryAfter > 0 {
		g.mu.Lock()
		g.quiet = time.Now().Add(unknown.RetryAfter)
		g.mu.Unlock()
	}
	return settled, err
}

// Verify asks the facilitator's opinion.
func (g *guard) Verify(ctx context.Context, payload *x402.PaymentPayload, offer x402.PaymentRequirements) (*x402.VerifyResponse, error) {
	return guarded(ctx, g, func(ctx context.Context) (*x402.VerifyResponse, error) {
		return g.Facilitator.Verify(ctx, payload, offer)
	})
}

// guarded makes one call through the breaker and gives it up when nobody is there.
func guarded[T any](ctx context.Context, g *guard, call func(context.Context) (T, error)) (T, error) {
	answer, err := g.breaker.Execute(func() (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type result struct {
			answer T
			err    error
		}
		done := make(chan result, 1)
		go func() {
			answer, err := call(ctx)
			done <- result{answer, err}
		}()
		for patience := time.NewTimer(silence); ; patience.Reset(probeEvery) {
			select {
			case r := <-done:
				return r.answer, r.err
			case <-patience.C:
				if g.probe(ctx) == nil {
					continue
				}
				cancel()
				select { // it may have answered while we asked
				case r := <-done:
					if r.err == nil {
						return r.answer, nil
					}
				default:
				}
				return nil, errAway
			}
		}
	})
	typed, _ := answer.(T)
	return typed, err
}

// probe asks whether anybody is there; many callers share one question a second. Any answer will do: a facilitator
// that does not like the question is not away.
func (g *guard) probe(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.probed) < time.Second {
		return g.away
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	_, err := g.Supported(ctx)
	g.probed, g.away = time.Now(), nil
	if err != nil && !errors.As(err, new(*x402.StatusError)) {
		g.away = errAway
	}
	return g.away
}
