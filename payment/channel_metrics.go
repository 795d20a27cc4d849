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
	sums                                  lastKnown[[]store.UnclaimedSum]
	states                                lastKnown[map[string]int64]
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

// Collect reports the last known figures while the database is unavailable.
func (g *channelGauges) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	if sums, ok := g.sums.get(func() ([]store.UnclaimedSum, error) {
		return g.store.Unclaimed(ctx, g.network.ID, strings.ToLower(g.network.Asset))
	}); ok {
		var sum, lost, withoutKey int64
		var age time.Duration
		for _, one := range sums.value {
			sum += one.Sum
			lost += one.Lost
			if one.Age > 0 {
				age = max(age, one.Age+time.Since(sums.at))
			}
			if !g.keys(one.ReceiverAuthorizer) {
				withoutKey += one.Sum
			}
		}
		to <- prometheus.MustNewConstMetric(g.sum, prometheus.GaugeValue, float64(sum))
		to <- prometheus.MustNewConstMetric(g.age, prometheus.GaugeValue, age.Seconds())
		to <- prometheus.MustNewConstMetric(g.lost, prometheus.GaugeValue, float64(lost))
		to <- prometheus.MustNewConstMetric(g.withoutKey, prometheus.GaugeValue, float64(withoutKey))
	}
	if counts, ok := g.states.get(func() (map[string]int64, error) { return g.store.CountPaymentChannels(ctx) }); ok {
		for state, count := range counts.value {
			to <- prometheus.MustNewConstMetric(g.withState, prometheus.GaugeValue, float64(count), state)
		}
	}
}
