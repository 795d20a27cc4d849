package payment

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/parley-chat/parley/x402"
)

const (
	// A call may be as slow as a block, but whoever has heard nothing for this long asks whether anybody is there.
	probeAfter = 600 * time.Millisecond
	// probeTimeout is how long that question waits: a caller is to be told within two seconds that nobody is.
	probeTimeout = time.Second
	// probeEvery is how often a long call asks again.
	probeEvery = 5 * time.Second
	// After this many failures in a row nobody is asked for a while.
	failuresToOpen = 5
	openFor        = 2 * time.Second
)

// errNoFacilitator means that the facilitator is not there.
var errNoFacilitator = errors.New("the facilitator is unavailable")

// errBackOff means that the facilitator has asked to be left alone for a while.
var errBackOff = errors.New("the facilitator answers 429")

// breaker is a circuit breaker before the facilitator. It notices when the facilitator is unavailable, so that callers get a
// response soon instead of after a settlement's whole timeout, and asks less often then.
type breaker struct {
	Facilitator
	circuit *gobreaker.CircuitBreaker[any]

	mu     sync.Mutex
	probed time.Time
	found  error     // by the last probe
	quiet  time.Time // until when the facilitator wants to be left alone (429)
}

func newBreaker(facilitator Facilitator, log *slog.Logger) *breaker {
	return &breaker{Facilitator: facilitator, circuit: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Timeout:     openFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		// Only silence counts. Somebody who answers is there, and no payer can close the door for the others with a payment
		// that makes the facilitator stumble.
		IsSuccessful: func(err error) bool { return err == nil || errors.As(err, new(*x402.StatusError)) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			log.Warn("facilitator", "was", from.String(), "is", to.String()) // closed: it answers; open: it is unavailable
		},
	})}
}

// ready tells whether it makes sense to ask now.
func (b *breaker) ready() bool { return b.circuit.State() != gobreaker.StateOpen && b.backOff() == 0 }

// backOff is how long the facilitator still wants to be left alone.
func (b *breaker) backOff() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Until(b.quiet), 0)
}

// Settle asks the facilitator to settle. Every error is an *x402.UnknownOutcome.
func (b *breaker) Settle(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.SettleResponse, error) {
	if wait := b.backOff(); wait > 0 {
		return nil, &x402.UnknownOutcome{NotSent: true, RetryAfter: wait, Err: errBackOff}
	}
	settled, err := throughBreaker(ctx, b, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.Settle(ctx, payload, requirements)
	})
	var unknown *x402.UnknownOutcome
	if err != nil && !errors.As(err, &unknown) {
		refused := errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
		err = &x402.UnknownOutcome{NotSent: refused, Err: err}
	}
	if unknown != nil && unknown.RetryAfter > 0 {
		b.mu.Lock()
		b.quiet = time.Now().Add(unknown.RetryAfter)
		b.mu.Unlock()
	}
	return settled, err
}

// Verify asks the facilitator's opinion.
func (b *breaker) Verify(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error) {
	return throughBreaker(ctx, b, func(ctx context.Context) (*x402.VerifyResponse, error) {
		return b.Facilitator.Verify(ctx, payload, requirements)
	})
}

// throughBreaker makes one call through the breaker and gives it up when nobody is there.
func throughBreaker[T any](ctx context.Context, b *breaker, call func(context.Context) (T, error)) (T, error) {
	response, err := b.circuit.Execute(func() (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type result struct {
			response T
			err      error
		}
		done := make(chan result, 1)
		go func() {
			response, err := call(ctx)
			done <- result{response, err}
		}()
		for timer := time.NewTimer(probeAfter); ; timer.Reset(probeEvery) {
			select {
			case r := <-done:
				return r.response, r.err
			case <-timer.C:
				if b.probe(ctx) == nil {
					continue
				}
				cancel()
				select { // it may have answered while we asked
				case r := <-done:
					if r.err == nil {
						return r.response, nil
					}
				default:
				}
				return nil, errNoFacilitator
			}
		}
	})
	typed, _ := response.(T)
	return typed, err
}

// probe asks whether anybody is there; many callers share one question a second. Any answer will do: a facilitator
// that does not like the question is available.
func (b *breaker) probe(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.probed) < time.Second {
		return b.found
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	_, err := b.Supported(ctx)
	b.probed, b.found = time.Now(), nil
	if err != nil && !errors.As(err, new(*x402.StatusError)) {
		b.found = errNoFacilitator
	}
	return b.found
}
