package payment

import (
	"context"
	"errors"
	"log/slog"
	"math"
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

// breaker is a circuit breaker before the facilitator. It notices when the facilitator is unavailable, so that callers get a
// response soon instead of after a settlement's whole timeout, and asks less often then.
type breaker struct {
	Facilitator
	circuit *gobreaker.CircuitBreaker[any]

	mu     sync.Mutex
	probed time.Time
	found  error     // by the last probe
	quiet  time.Time // until then the facilitator wants no calls (429 with Retry-After)
}

func newBreaker(facilitator Facilitator, log *slog.Logger) *breaker {
	return &breaker{Facilitator: facilitator, circuit: gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Timeout:     openFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool { return counts.ConsecutiveFailures >= failuresToOpen },
		// Only a missing response counts as a failure. An error response shows that the facilitator is available, and no payer
		// can open the circuit for others with a payment that causes one.
		IsSuccessful: func(err error) bool { return err == nil || errors.As(err, new(*x402.StatusError)) },
		// A caller that hangs up cancels its call. That says nothing about the facilitator, and must not open the circuit for others.
		IsExcluded: func(err error) bool { return errors.Is(err, context.Canceled) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			log.Warn("facilitator", "was", from.String(), "is", to.String()) // closed: it responds; open: it is unavailable
		},
	})}
}

// ready reports whether a call can be made now.
func (b *breaker) ready() bool { return b.circuit.State() != gobreaker.StateOpen && b.backOff() == 0 }

// available returns nil if a call can be made now.
func (b *breaker) available() *Error {
	if b.ready() {
		return nil
	}
	return b.unavailable(errNoFacilitator)
}

// unavailable returns the error for a call that the facilitator did not answer.
func (b *breaker) unavailable(cause error) *Error {
	return unavailable("the payment facilitator is unavailable", max(2, int(math.Ceil(b.backOff().Seconds()))), cause)
}

// backOff returns how long the facilitator still wants no calls.
func (b *breaker) backOff() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(time.Until(b.quiet), 0)
}

// Settle asks the facilitator to settle. Every error is an *x402.UnknownOutcome.
func (b *breaker) Settle(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.SettleResponse, error) {
	return b.settle(ctx, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.Settle(ctx, payload, requirements)
	})
}

// SettleDeposit is Settle for a deposit.
func (b *breaker) SettleDeposit(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.SettleResponse, error) {
	return b.settle(ctx, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.SettleDeposit(ctx, payment, requirements)
	})
}

// SettleClaims is Settle for claims.
func (b *breaker) SettleClaims(ctx context.Context, receiver x402.ChannelReceiver, claims []x402.VoucherClaim, signature string) (*x402.SettleResponse, error) {
	return b.settle(ctx, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.SettleClaims(ctx, receiver, claims, signature)
	})
}

// SettleReceiver is Settle for what is claimed.
func (b *breaker) SettleReceiver(ctx context.Context, receiver x402.ChannelReceiver) (*x402.SettleResponse, error) {
	return b.settle(ctx, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.SettleReceiver(ctx, receiver)
	})
}

// SettleRefund is Settle for a refund.
func (b *breaker) SettleRefund(ctx context.Context, refund x402.RefundCommand, requirements x402.PaymentRequirements) (*x402.SettleResponse, error) {
	return b.settle(ctx, func(ctx context.Context) (*x402.SettleResponse, error) {
		return b.Facilitator.SettleRefund(ctx, refund, requirements)
	})
}

func (b *breaker) settle(ctx context.Context, call func(context.Context) (*x402.SettleResponse, error)) (*x402.SettleResponse, error) {
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
		b.mu.Lock()
		b.quiet = time.Now().Add(unknown.RetryAfter)
		b.mu.Unlock()
	}
	return settled, err
}

// Verify asks the facilitator to verify.
func (b *breaker) Verify(ctx context.Context, payload *x402.PaymentPayload, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error) {
	return throughBreaker(ctx, b, func(ctx context.Context) (*x402.VerifyResponse, error) {
		return b.Facilitator.Verify(ctx, payload, requirements)
	})
}

// VerifyBatch is Verify for a payment of a payment channel.
func (b *breaker) VerifyBatch(ctx context.Context, payment *x402.BatchPayment, requirements x402.PaymentRequirements) (*x402.VerifyResponse, error) {
	return throughBreaker(ctx, b, func(ctx context.Context) (*x402.VerifyResponse, error) {
		return b.Facilitator.VerifyBatch(ctx, payment, requirements)
	})
}

// throughBreaker makes one call through the circuit breaker and cancels it if a probe fails.
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
