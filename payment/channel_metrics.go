package payment

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// outcomeSettled is a transaction of payment channels that is confirmed. The others are outcomeRefused and outcomeUnclear.
const outcomeSettled = "settled"

// channelTransaction counts a claim, a payout or a refund.
func (m *metrics) channelTransaction(kind, outcome string) {
	m.transactions.WithLabelValues(kind, outcome).Inc()
}

// channelGauges describe the payment channels in the ledger when metrics are collected.
type channelGauges struct {
	store                                 *store.Store
	network                               x402.Network
	sum, age, lost, withoutKey, withState *prometheus.Desc
	keys                                  func(authorizer string) bool
}

func newChannelGauges(database *store.Store, network x402.Network) *channelGauges {
	return &channelGauges{
		store: database, network: network,
		sum: prometheus.NewDesc("parley_unclaimed_atomic_units",
			"Vouchers of payment channels that were charged and are not claimed on the blockchain, in atomic units.", nil, nil),
		age: prometheus.NewDesc("parley_unclaimed_seconds", "Age of the oldest voucher that is not claimed.", nil, nil),
		lost: prometheus.NewDesc("parley_unclaimed_lost_atomic_units",
			"What payment channels were charged and their payers withdrew before it was claimed, in atomic units.", nil, nil),
		withoutKey: prometheus.NewDesc("parley_unclaimed_without_key_atomic_units",
			"The part of parley_unclaimed_atomic_units that this server cannot claim, because it does not have the key of the authorizer.", nil, nil),
		withState: prometheus.NewDesc("parley_payment_channels", "Payment channels by state.", []string{"state"}, nil),
	}
}

func (g *channelGauges) Describe(to chan<- *prometheus.Desc) {
	to <- g.sum
	to <- g.age
	to <- g.lost
	to <- g.withoutKey
	to <- g.withState
}

// Collect reports no number rather than a wrong one.
func (g *channelGauges) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if sums, err := g.store.Unclaimed(ctx, g.network.ID, strings.ToLower(g.network.Asset)); err == nil {
		var sum, lost, withoutKey int64
		var age time.Duration
		for _, one := range sums {
			sum += one.Sum
			lost += one.Lost
			age = max(age, one.Age)
			if !g.keys(one.ReceiverAuthorizer) {
				withoutKey += one.Sum
			}
		}
		to <- prometheus.MustNewConstMetric(g.sum, prometheus.GaugeValue, float64(sum))
		to <- prometheus.MustNewConstMetric(g.age, prometheus.GaugeValue, age.Seconds())
		to <- prometheus.MustNewConstMetric(g.lost, prometheus.GaugeValue, float64(lost))
		to <- prometheus.MustNewConstMetric(g.withoutKey, prometheus.GaugeValue, float64(withoutKey))
	}
	if counts, err := g.store.CountPaymentChannels(ctx); err == nil {
		for state, count := range counts {
			to <- prometheus.MustNewConstMetric(g.withState, prometheus.GaugeValue, float64(count), state)
		}
	}
}
