package payment

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

// lastSettled reads when each operation was last paid with exact, when metrics are collected. Catalogues of facilitators drop operations
// that were not settled for a while.
type lastSettled struct {
	store      *store.Store
	operations []string
	age        *prometheus.Desc
	ages       LastKnown[map[string]time.Duration]
}

func newLastSettled(database *store.Store) *lastSettled {
	return &lastSettled{store: database, age: prometheus.NewDesc("parley_settled_seconds",
		"How long ago the facilitator settled a payment of scheme exact, by operation; only operations that were ever paid so.",
		[]string{"operation"}, nil)}
}

func (l *lastSettled) Describe(to chan<- *prometheus.Desc) { to <- l.age }

func (l *lastSettled) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), CountTime)
	defer cancel()
	ages, ok := l.ages.Get(func() (map[string]time.Duration, error) { return l.store.LastSettled(ctx, l.operations) })
	if !ok {
		return
	}
	for operation, age := range ages.Value {
		to <- prometheus.MustNewConstMetric(l.age, prometheus.GaugeValue, (age + time.Since(ages.At)).Seconds(), operation)
	}
}
