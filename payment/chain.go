package payment

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/x402"
)

// Chain reads balances, authorizations, payment channels, their events and code from the chain: x402.Chain, over JSON-RPC.
type Chain interface {
	Balance(ctx context.Context, asset, holder string) (uint64, error)
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	TransferBy(ctx context.Context, asset, authorizer, nonce, transaction string) (*x402.Transfer, error)
	Channel(ctx context.Context, id string) (x402.Channel, time.Time, error)
	ChannelEvents(ctx context.Context, from, until uint64, kinds ...string) iter.Seq2[x402.ChannelEvent, error]
	HasCode(ctx context.Context, address string) (bool, error)
	BlockAt(ctx context.Context, at time.Time) (uint64, error)
	Newest(ctx context.Context) (number uint64, at time.Time, err error)
}

// measuredChain measures the calls of the blockchain's endpoint.
type measuredChain struct {
	Chain
	seconds *prometheus.HistogramVec
}

func newMeasuredChain(chain Chain) *measuredChain {
	m := &measuredChain{chain, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_rpc_seconds",
		Help:    "Duration of reads from the blockchain, by what is read and outcome: ok, failed, or cancelled by the caller.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"call", "outcome"})}
	for _, call := range []string{"balance", "authorization", "channel", "code"} { // an increase from nothing is none to Prometheus
		for _, outcome := range []string{"ok", "failed"} {
			m.seconds.WithLabelValues(call, outcome)
		}
	}
	return m
}

// Balance implements [Chain].
func (m *measuredChain) Balance(ctx context.Context, asset, holder string) (balance uint64, err error) {
	defer m.measure("balance", time.Now(), &err)
	return m.Chain.Balance(ctx, asset, holder)
}

// Authorization implements [Chain].
func (m *measuredChain) Authorization(
	ctx context.Context, asset, authorizer, nonce string, since time.Time,
) (state x402.AuthorizationState, err error) {
	defer m.measure("authorization", time.Now(), &err)
	return m.Chain.Authorization(ctx, asset, authorizer, nonce, since)
}

// Channel implements [Chain].
func (m *measuredChain) Channel(ctx context.Context, id string) (channel x402.Channel, at time.Time, err error) {
	defer m.measure("channel", time.Now(), &err)
	return m.Chain.Channel(ctx, id)
}

// HasCode implements [Chain].
func (m *measuredChain) HasCode(ctx context.Context, address string) (has bool, err error) {
	defer m.measure("code", time.Now(), &err)
	return m.Chain.HasCode(ctx, address)
}

func (m *measuredChain) measure(call string, began time.Time, err *error) {
	outcome := "ok"
	switch {
	case errors.Is(*err, context.Canceled):
		outcome = "cancelled"
	case *err != nil:
		outcome = "failed"
	}
	m.seconds.WithLabelValues(call, outcome).Observe(time.Since(began).Seconds())
}

const (
	// contractFor is how long the result "contract" is cached, plainFor how long the result "no contract": a smart wallet may
	// be deployed at any time.
	contractFor = 10 * time.Minute
	plainFor    = time.Minute
	// maxWallets bounds the cache to about 2 MB.
	maxWallets    = 10_000
	walletTimeout = 2 * time.Second
)

// isContract reports whether the payer of an attempt is a contract. The error is an *Error. It does not say whether something was charged:
// the payment may be in the ledger already.
func (e *Engine) isContract(ctx context.Context, a *Attempt) (bool, error) {
	address := strings.ToLower(a.payload.PayerAddress())
	if known, ok := e.contracts.Get(address); ok {
		return known, nil
	}
	if err := e.takeTokens(a, chainCost); err != nil {
		err.Undecided = true
		return false, err
	}
	// A caller that hangs up does not end it: it would ask again for nothing.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), walletTimeout)
	defer cancel()
	found, err := e.Chain.HasCode(asking, address)
	switch {
	case err != nil:
		return false, &Error{Code: CodeBusy, RetryAfter: 2, Undecided: true, Cause: err,
			Message: "the signature is not by the key of authorization.from, and the server cannot check at the moment whether that address " +
				"is a smart wallet; " + Again}
	case found:
		e.contracts.Add(address, true, contractFor)
	default:
		e.contracts.Add(address, false, plainFor)
	}
	return found, nil
}
