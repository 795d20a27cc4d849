package payment

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/internal/tracing"
	"github.com/parley-chat/parley/x402"
)

// measuredChain measures and traces the calls of the blockchain's endpoint.
type measuredChain struct {
	Chain
	seconds *prometheus.HistogramVec
	tracer  *tracing.Tracer
}

func newMeasuredChain(chain Chain, tracer *tracing.Tracer) *measuredChain {
	m := &measuredChain{chain, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_rpc_seconds",
		Help:    "Duration of reads from the blockchain, by what is read and outcome: ok, failed, or cancelled by the caller.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"call", "outcome"}), tracer}
	for _, call := range []string{"balance", "authorization", "channel", "code"} { // an increase from nothing is none to Prometheus
		for _, outcome := range []string{"ok", "failed"} {
			m.seconds.WithLabelValues(call, outcome)
		}
	}
	return m
}

// Balance is that of the chain.
func (m *measuredChain) Balance(ctx context.Context, asset, holder string) (balance uint64, err error) {
	ctx, span := m.tracer.Start(ctx, "rpc balance")
	defer m.measure("balance", time.Now(), span, &err)
	return m.Chain.Balance(ctx, asset, holder)
}

// Authorization is that of the chain.
func (m *measuredChain) Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (state x402.AuthorizationState, err error) {
	ctx, span := m.tracer.Start(ctx, "rpc authorization")
	defer m.measure("authorization", time.Now(), span, &err)
	return m.Chain.Authorization(ctx, asset, authorizer, nonce, since)
}

// Channel is that of the chain.
func (m *measuredChain) Channel(ctx context.Context, id string) (channel x402.Channel, at time.Time, err error) {
	ctx, span := m.tracer.Start(ctx, "rpc channel")
	defer m.measure("channel", time.Now(), span, &err)
	return m.Chain.Channel(ctx, id)
}

// HasCode is that of the chain.
func (m *measuredChain) HasCode(ctx context.Context, address string) (has bool, err error) {
	ctx, span := m.tracer.Start(ctx, "rpc code")
	defer m.measure("code", time.Now(), span, &err)
	return m.Chain.HasCode(ctx, address)
}

func (m *measuredChain) measure(call string, began time.Time, span tracing.Span, err *error) {
	outcome := "ok"
	switch {
	case errors.Is(*err, context.Canceled):
		outcome = "cancelled"
	case *err != nil:
		outcome = "failed"
	}
	span.End(outcome == "failed")
	m.seconds.WithLabelValues(call, outcome).Observe(time.Since(began).Seconds())
}
