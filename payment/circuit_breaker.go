package payment

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/parley-chat/parley/x402"
)

const (
	// probeAfter is how long a call waits before it probes. A settlement may take as long as a block.
	probeAfter = 600 * time.Millisecond
	// probeTimeout bounds a probe, so that a caller learns within two seconds that the facilitator is unavailable.
	probeTimeout = time.Second
	// probeEvery is how often a long call probes again.
	probeEvery = 5 * time.Second
	// After failuresToOpen failures in a row no call is made for the time openFor.
	failuresToOpen = 5
	openFor        = 2 * time.Second
)

// errNoFacilitator means that the facilitator does not respond.
var errNoFacilitator = errors.New("the facilitator is unavailable")

// errBackOff means that the facilitator returned 429 and its Retry-After is not over.
var errBackOff = errors.New("the facilitator returned 429")

// Facilitator verifies and settles payments on the chain: x402.Facilitator, or the one of the official SDK. An error of Settle
// means that the outcome is not known.
type Facilitator interface {
	Supported(ctx context.Context) (*x402.SupportedResponse, error)
	Verify(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error)
	Settle(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
	VerifyBatch(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error)
	SettleClaims(
		ctx context.Context, receiver x402.ChannelReceiver, claims []x402.VoucherClaim, signature string,
	) (*x402.SettleResponse, error)
	SettleReceiver(ctx context.Context, receiver x402.ChannelReceiver) (*x402.SettleResponse, error)
	SettleRefund(ctx context.Context, refund x402.RefundCommand, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
	SettleDeposit(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.SettleResponse, error)
}

// Breaker is a circuit breaker before the facilitator. It notices when the facilitator is unavailable, so that callers get a
// response soon instead of after a settlement's whole timeout, and asks less often then.
type Breaker struct {
	facilitator Facilitator
	circuit     *gobreaker.CircuitBreaker[any]

	mu       sync.Mutex
	probed   time.Time
	found    error     // by the last probe
	quiet    time.Time // until then the facilitator wants no calls (429 with Retry-After)
	noVerify time.Time // until then it is not asked to verify: strangers cause that, and their pause must not stop settlements
}

func newBreaker(facilitator Facilitator, log *slog.Logger) *Breaker {
	return &Breaker{facilitator: facilitator, circuit: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Timeout:     openFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		// Only a missing response counts as a failure. Any other shows that the facilitator is available, and no payer can open the
		// circuit for others with a payment that causes an error or stays pending.
		IsSuccessful: func(err error) bool {
			unknown, ok := errors.AsType[*x402.UnknownOutcome](err)
			return err == nil || ok && unknown.Reason != "" || errors.As(err, new(*x402.StatusError))
		},
		// A caller that hangs up cancels its call. That says nothing about the facilitator, and must not open the circuit for others.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateClosed:
				log.Warn("the facilitator is available again")
			case from == gobreaker.StateClosed:
				log.Warn("the facilitator is unavailable")
			}
		},
	})}
}

// ready reports whether a call can be made now.
func (b *Breaker) ready() bool { return b.circuit.State() != gobreaker.StateOpen && b.backOff() == 0 }

// Available returns nil if a call can be made now.
func (b *Breaker) Available() *Error {
	if b.ready() {
		return nil
	}
	return b.Unavailable(errNoFacilitator)
}

// Unavailable returns the error for a call that the facilitator did not answer.
func (b *Breaker) Unavailable(cause error) *Error {
	wait := b.backOff()
	if status, ok := errors.AsType[*x402.StatusError](cause); ok {
		wait = max(wait, status.RetryAfter)
	}
	return Unavailable("the payment facilitator is unavailable", max(2, int(math.Ceil(wait.Seconds()))), cause)
}

// backOff returns how long the facilitator still wants no calls.
func (b *Breaker) backOff() time.Duration { return b.until(&b.quiet) }

func (b *Breaker) until(end *time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Until(*end), 0)
}

// pause records that the facilitator asked for a pause.
func (b *Breaker) pause(end *time.Time, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*end = time.Now().Add(wait)
}

// Settle makes a call that settles. Every error is an *x402.UnknownOutcome.
func (b *Breaker) Settle(
	ctx context.Context, call func(context.Context, Facilitator) (*x402.SettleResponse, error),
) (*x402.SettleResponse, error) {
	if wait := b.backOff(); wait > 0 {
		return nil, &x402.UnknownOutcome{NotSent: true, RetryAfter: wait, Err: errBackOff}
	}
	settled, err := throughBreaker(ctx, b, call)
	var unknown *x402.UnknownOutcome
	if err != nil && !errors.As(err, &unknown) {
		refused := errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
		err = &x402.UnknownOutcome{NotSent: refused, Err: err}
	}
	if unknown != nil && unknown.RetryAfter > 0 {
		b.pause(&b.quiet, unknown.RetryAfter)
	}
	return settled, err
}

// Verify makes a call that verifies, unless the facilitator asked for a pause: it then returns the *x402.StatusError of that again.
func (b *Breaker) Verify(
	ctx context.Context, call func(context.Context, Facilitator) (*x402.VerifyResponse, error),
) (*x402.VerifyResponse, error) {
	if wait := max(b.backOff(), b.until(&b.noVerify)); wait > 0 {
		return nil, &x402.StatusError{Status: http.StatusTooManyRequests, RetryAfter: wait}
	}
	verdict, err := throughBreaker(ctx, b, call)
	if status, ok := errors.AsType[*x402.StatusError](err); ok && status.RetryAfter > 0 {
		b.pause(&b.noVerify, status.RetryAfter)
	}
	return verdict, err
}

// Supported asks what the facilitator settles. It does not pass the circuit breaker.
func (b *Breaker) Supported(ctx context.Context) (*x402.SupportedResponse, error) {
	return b.facilitator.Supported(ctx)
}

// throughBreaker makes one call through the circuit breaker and cancels it if a probe fails.
func throughBreaker[T any](ctx context.Context, b *Breaker, call func(context.Context, Facilitator) (T, error)) (T, error) {
	response, err := b.circuit.Execute(func() (any, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type result struct {
			response T
			err      error
		}
		done := make(chan result, 1)
		go func() {
			response, err := call(ctx, b.facilitator)
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
				select { // it may have responded during the probe
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

// probe asks whether the facilitator responds. All callers share one probe a second. Any response counts, also an error.
func (b *Breaker) probe(ctx context.Context) error {
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
