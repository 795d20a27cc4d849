package channel

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// The outcomes of a claim, a payout or a refund.
const (
	confirmed = "settled"
	refused   = "refused"
	unclear   = "unclear"
)

type metrics struct {
	scheme       *Scheme
	transactions *prometheus.CounterVec
	foreign      prometheus.Counter // see Scheme.claimedElsewhere

	// Of the ledger, when metrics are collected.
	sum, age, lost, withoutKey, withState, most, claimAge, scanAge, delay *prometheus.Desc
	sums                                                                  payment.LastKnown[[]store.UnclaimedSum]
	states                                                                payment.LastKnown[map[string]int64]
}

func newMetrics(scheme *Scheme) *metrics {
	describe := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	m := &metrics{
		scheme: scheme,
		transactions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_payment_channel_transactions_total",
			Help: "Claims, payouts (settle) and refunds of payment channels by outcome: settled, refused, or unclear."},
			[]string{"kind", "outcome"}),
		foreign: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_payment_channels_claimed_elsewhere_total",
			Help: "Payment channels from which more is claimed than this database has charged."}),
		sum: describe("parley_unclaimed_atomic_units",
			"Vouchers of payment channels that were charged and are not claimed on the blockchain, in atomic units."),
		age: describe("parley_unclaimed_seconds", "Age of the oldest voucher that is not claimed."),
		lost: describe("parley_unclaimed_lost_atomic_units",
			"What payment channels were charged and their payers withdrew before it was claimed, in atomic units."),
		withoutKey: describe("parley_unclaimed_without_key_atomic_units",
			"The part of parley_unclaimed_atomic_units that this server cannot claim, because it does not have the key of the authorizer."),
		withState: describe("parley_payment_channels", "Payment channels by state.", "state"),
		most: describe("parley_unclaimed_max_atomic_units",
			"The bound of parley_unclaimed_atomic_units, at which vouchers are refused; 0 is no bound."),
		claimAge: describe("parley_unclaimed_claim_age_seconds", "The age at which vouchers are claimed."),
		scanAge: describe("parley_payment_channel_scan_seconds",
			"How long ago the newest block was mined up to which withdrawals from payment channels are known."),
		delay: describe("parley_payment_channel_withdraw_delay_seconds",
			"The withdraw delay of new payment channels. When the scan is older than half of it, no voucher is charged."),
	}
	for _, kind := range []string{store.ChannelClaim, store.ChannelSettle, store.ChannelRefund} {
		for _, outcome := range []string{confirmed, refused, unclear} {
			m.transactions.WithLabelValues(kind, outcome)
		}
	}
	return m
}

// count counts a claim, a payout or a refund.
func (m *metrics) count(kind, outcome string) { m.transactions.WithLabelValues(kind, outcome).Inc() }

// Collectors implements [payment.Scheme].
func (c *Scheme) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.metrics.transactions, c.metrics.foreign, c.metrics}
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{m.sum, m.age, m.lost, m.withoutKey, m.withState, m.most, m.claimAge, m.scanAge, m.delay} {
		to <- one
	}
}

// Collect implements [prometheus.Collector]. It reports the last known figures while the database is unavailable.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	report := func(what *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, value, labels...)
	}
	report(m.most, float64(m.scheme.MaxUnclaimedTotal)) // settings, which alerts compare with
	report(m.claimAge, m.scheme.ClaimAge.Seconds())
	report(m.scanAge, m.scheme.scanAge().Seconds())
	report(m.delay, m.scheme.WithdrawDelay.Seconds())
	ctx, cancel := context.WithTimeout(context.Background(), payment.CountTime)
	defer cancel()
	if sums, ok := m.sums.Get(func() ([]store.UnclaimedSum, error) {
		return m.scheme.store.Unclaimed(ctx, m.scheme.network, m.scheme.asset)
	}); ok {
		var sum, lost, withoutKey int64
		var age time.Duration
		for _, one := range sums.Value {
			sum += one.Sum
			lost += one.Lost
			if one.Age > 0 {
				age = max(age, one.Age+time.Since(sums.At))
			}
			if m.scheme.keys[one.ReceiverAuthorizer] == nil {
				withoutKey += one.Sum
			}
		}
		report(m.sum, float64(sum))
		report(m.age, age.Seconds())
		report(m.lost, float64(lost))
		report(m.withoutKey, float64(withoutKey))
	}
	if counts, ok := m.states.Get(func() (map[string]int64, error) { return m.scheme.store.CountPaymentChannels(ctx) }); ok {
		for state, count := range counts.Value {
			report(m.withState, float64(count), state)
		}
	}
}
