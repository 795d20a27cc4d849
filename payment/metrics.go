package payment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

// The values of the label outcome.
const (
	OutcomeDelivered     = "delivered"     // settled and delivered
	outcomeRepeated      = "repeated"      // its stored response was returned
	outcomeRefused       = "refused"       // by the facilitator; nothing was taken
	outcomeUnclear       = "unclear"       // an attempt without a clear outcome; it will be made again
	outcomeUndeliverable = "undeliverable" // settled, but rejected by the operation's rules meanwhile
	OutcomeDeposited     = "deposited"     // the deposit is in its payment channel; the operation rejected the call and nothing was charged
	outcomeNotSent       = "not_sent"      // the facilitator was not reached, or returned 429; nothing was taken
)

// metrics have operations and outcomes as labels, never payers or content.
type metrics struct {
	payments *prometheus.CounterVec
	revenue  *prometheus.CounterVec
	settling *prometheus.HistogramVec
	up       prometheus.GaugeFunc
	open     *openPayments
	settled  *lastSettled
	reads    *prometheus.HistogramVec // see measuredChain
}

func newMetrics(database *store.Store, responds func() bool, reads *prometheus.HistogramVec) *metrics {
	return &metrics{
		payments: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_payments_total",
			Help: "Payments by operation and outcome."}, []string{"operation", "outcome"}),
		revenue: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_revenue_atomic_units_total",
			Help: "Charged amount in atomic units of the token, by operation. One unit of USDC is a millionth of a dollar."}, []string{"operation"}),
		settling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_facilitator_seconds",
			Help:    "Duration of settlements by the facilitator, by whether it gave a verdict.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 90}}, []string{"verdict"}),
		up: prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_facilitator_up",
			Help: "0 while the facilitator is unavailable."}, func() float64 {
			if responds() {
				return 1
			}
			return 0
		}),
		open: newOpenPayments(database), settled: newLastSettled(database), reads: reads,
	}
}

// announce creates the counters of an operation. Prometheus takes no increase from a counter that appears with its first event.
func (m *metrics) announce(operation string) {
	m.settled.operations = append(m.settled.operations, operation)
	m.revenue.WithLabelValues(operation)
	for _, outcome := range []string{OutcomeDelivered, outcomeRefused, outcomeUnclear, outcomeUndeliverable, outcomeNotSent} {
		m.payments.WithLabelValues(operation, outcome)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.payments, m.revenue, m.settling, m.up, m.open, m.settled, m.reads}
}

// Count counts an outcome of a payment.
func (e *Engine) Count(row *store.Payment, outcome string) {
	m := e.metrics
	m.payments.WithLabelValues(row.Operation, outcome).Inc()
	// The money of a payment that is redeemed was counted when it moved.
	if (outcome == OutcomeDelivered || outcome == outcomeUndeliverable) && row.State != store.PaymentUndeliverable {
		m.revenue.WithLabelValues(row.Operation).Add(float64(row.Amount))
	}
}
