package payment

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

// countTime limits the queries of one collection of metrics.
const countTime = 2 * time.Second

// counted is a figure of the ledger, and when it was counted.
type counted[T any] struct {
	value T
	at    time.Time
}

// lastKnown keeps a figure for the time when the database is unavailable. A metric that vanished would silence its alerts.
type lastKnown[T any] struct {
	mu   sync.Mutex
	last counted[T]
}

// get counts, and returns the last figure if that fails. ok is false if there is none yet.
func (l *lastKnown[T]) get(count func() (T, error)) (figure counted[T], ok bool) {
	at := time.Now()
	value, err := count()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && at.After(l.last.at) {
		l.last = counted[T]{value, at}
	}
	return l.last, !l.last.at.IsZero()
}

// openPayments counts open payments when metrics are collected.
type openPayments struct {
	store              *store.Store
	begun              time.Time
	count, oldest, age *prometheus.Desc
	counts             lastKnown[*store.OpenCounts]
}

func newOpenPayments(database *store.Store) *openPayments {
	return &openPayments{
		store: database, begun: time.Now(),
		count: prometheus.NewDesc("parley_payments_open", "Open and undeliverable payments in the ledger, by state.", []string{"state"}, nil),
		oldest: prometheus.NewDesc("parley_payments_open_oldest_seconds",
			"Age of the oldest payment that is settling or unknown; 0 if there is none.", nil, nil),
		age: prometheus.NewDesc("parley_ledger_counted_seconds",
			"How long ago the figures of the ledger were counted. While the database is unavailable, the last known ones are reported.", nil, nil),
	}
}

func (o *openPayments) Describe(to chan<- *prometheus.Desc) {
	to <- o.count
	to <- o.oldest
	to <- o.age
}

func (o *openPayments) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countTime)
	defer cancel()
	at := o.begun // nothing was counted since the start
	if counts, ok := o.counts.get(func() (*store.OpenCounts, error) { return o.store.CountOpenPayments(ctx) }); ok {
		at = counts.at
		for state, count := range counts.value.ByState {
			to <- prometheus.MustNewConstMetric(o.count, prometheus.GaugeValue, float64(count), state)
		}
		oldest := counts.value.Oldest
		if oldest > 0 {
			oldest += time.Since(at)
		}
		to <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, oldest.Seconds())
	}
	to <- prometheus.MustNewConstMetric(o.age, prometheus.GaugeValue, time.Since(at).Seconds())
}
