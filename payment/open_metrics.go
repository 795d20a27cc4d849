package payment

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

// CountTime limits the queries of one collection of metrics.
const CountTime = 2 * time.Second

// Counted is a figure of the ledger, and when it was counted.
type Counted[T any] struct {
	Value T
	At    time.Time
}

// LastKnown keeps a figure for the time when the database is unavailable. A metric that vanished would silence its alerts.
type LastKnown[T any] struct {
	mu   sync.Mutex
	last Counted[T]
}

// Get counts, and returns the last figure if that fails. ok is false if there is none yet.
func (l *LastKnown[T]) Get(count func() (T, error)) (figure Counted[T], ok bool) {
	at := time.Now()
	value, err := count()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && at.After(l.last.At) {
		l.last = Counted[T]{value, at}
	}
	return l.last, !l.last.At.IsZero()
}

// openPayments counts open payments when metrics are collected.
type openPayments struct {
	store              *store.Store
	begun              time.Time
	count, oldest, age *prometheus.Desc
	counts             LastKnown[*store.OpenCounts]
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
	ctx, cancel := context.WithTimeout(context.Background(), CountTime)
	defer cancel()
	at := o.begun // nothing was counted since the start
	if counts, ok := o.counts.Get(func() (*store.OpenCounts, error) { return o.store.CountOpenPayments(ctx) }); ok {
		at = counts.At
		for state, count := range counts.Value.ByState {
			to <- prometheus.MustNewConstMetric(o.count, prometheus.GaugeValue, float64(count), state)
		}
		oldest := counts.Value.Oldest
		if oldest > 0 {
			oldest += time.Since(at)
		}
		to <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, oldest.Seconds())
	}
	to <- prometheus.MustNewConstMetric(o.age, prometheus.GaugeValue, time.Since(at).Seconds())
}
