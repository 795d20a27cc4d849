package payment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

// The values of the label outcome.
const (
	outcomeDelivered     = "delivered"     // settled and delivered
	outcomeRepeated      = "repeated"      // its stored response was returned
	outcomeRefused       = "refused"       // by the facilitator; nothing was taken
	outcomeUnclear       = "unclear"       // an attempt without a clear outcome; it will be made again
	outcomeUndeliverable = "undeliverable" // settled, but rejected by the operation's rules meanwhile
	outcomeDeposited     = "deposited"     // the deposit is in its payment channel; the operation rejected the call and nothing was charged
	outcomeNotSent       = "not_sent"      // the facilitator was not reached, or returned 429; nothing was taken
)

// metrics have operations and outcomes as labels, never payers or content.
type metrics struct {
	payments *prometheus.CounterVec
	revenue  *prometheus.CounterVec
	settling *prometheus.HistogramVec
	up       prometheus.GaugeFunc
	open     *openPayments
	reads    *prometheus.HistogramVec // see measuredChain

	// Of payment channels.
	transactions *prometheus.CounterVec
	foreign      prometheus.Counter // see Engine.claimedElsewhere
	channels     *channelGauges
	limits       []prometheus.Collector
}

func newMetrics(database *store.Store, responds func() bool, config Config, reads *prometheus.HistogramVec) *metrics {
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
		open: newOpenPayments(database), reads: reads,
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_payment_channel_transactions_total",
			Help: "Claims, payouts (settle) and refunds of payment channels by outcome: settled, refused, or unclear."}, []string{"kind", "outcome"}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_payment_channels_claimed_elsewhere_total",
			Help: "Payment channels from which more is claimed than this database has charged."}),
		channels: newChannelGauges(database, config.Network),
		limits: []prometheus.Collector{
			constant("parley_unclaimed_max_atomic_units", "The bound of parley_unclaimed_atomic_units, at which vouchers are refused; 0 is no bound.",
				float64(config.MaxUnclaimedTotal)),
			constant("parley_unclaimed_claim_age_seconds", "The age at which vouchers are claimed.", config.ClaimAge.Seconds()),
		},
	}
}

// constant is a metric for a setting, which alerts compare with.
func constant(name, help string, value float64) prometheus.Collector {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	gauge.Set(value)
	return gauge
}

// announce creates the counters of an operation. Prometheus takes no increase from a counter that appears with its first event.
func (m *metrics) announce(operation string) {
	m.revenue.WithLabelValues(operation)
	for _, outcome := range []string{outcomeDelivered, outcomeRefused, outcomeUnclear, outcomeUndeliverable, outcomeNotSent} {
		m.payments.WithLabelValues(operation, outcome)
	}
}

// Collectors are the engine's metrics.
func (e *Engine) Collectors() []prometheus.Collector {
	m := e.metrics
	collectors := []prometheus.Collector{m.payments, m.revenue, m.settling, m.up, m.open, m.reads}
	if e.channels != nil {
		m.channels.keys = func(authorizer string) bool { return e.channels.keys[authorizer] != nil }
		for _, kind := range []string{store.ChannelClaim, store.ChannelSettle, store.ChannelRefund} {
			for _, outcome := range []string{outcomeSettled, outcomeRefused, outcomeUnclear} {
				m.transactions.WithLabelValues(kind, outcome)
			}
		}
		collectors = append(append(collectors, m.transactions, m.foreign, m.channels), m.limits...)
	}
	return collectors
}

func (m *metrics) payment(row *store.Payment, outcome string) {
	m.payments.WithLabelValues(row.Operation, outcome).Inc()
	switch outcome {
	case outcomeDelivered, outcomeUndeliverable:
		if row.State != store.PaymentUndeliverable { // redeemed: the money was counted then
			m.revenue.WithLabelValues(row.Operation).Add(float64(row.Amount))
		}
	}
}
