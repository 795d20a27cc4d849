package payment

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
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

	// Of payment channels.
	transactions *prometheus.CounterVec
	foreign      prometheus.Counter // see Engine.claimedElsewhere
	channels     *channelGauges
}

func newMetrics(database *store.Store, ready func() bool, network x402.Network) *metrics {
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
			if ready() {
				return 1
			}
			return 0
		}),
		open: newOpenPayments(database),
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_payment_channel_transactions_total",
			Help: "Claims, payouts (settle) and refunds of payment channels by outcome: settled, refused, or unclear."}, []string{"kind", "outcome"}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_payment_channels_claimed_elsewhere_total",
			Help: "Payment channels from which more is claimed than this database has charged."}),
		channels: newChannelGauges(database, network),
	}
}

// Collectors are the engine's metrics.
func (e *Engine) Collectors() []prometheus.Collector {
	m := e.metrics
	collectors := []prometheus.Collector{m.payments, m.revenue, m.settling, m.up, m.open}
	if e.channels != nil {
		m.channels.keys = func(authorizer string) bool { return e.channels.keys[authorizer] != nil }
		collectors = append(collectors, m.transactions, m.foreign, m.channels)
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
