package retention

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/store"
)

type metrics struct {
	removed                     *prometheus.CounterVec
	last, seconds, busy, oldest prometheus.Gauge
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "parley_retention_" + name, Help: help})
	}
	m := &metrics{
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_retention_removed_total",
			Help: "Rows that this server removed because they were too old: message, reaction, membership, conversation."}, []string{"kind"}),
		last:    gauge("last_success_timestamp_seconds", "When this server last removed everything that was too old."),
		seconds: gauge("seconds", "How long that took."),
		busy:    gauge("busy_conversations", "Conversations that it left out because other transactions had locked them."),
		oldest:  gauge("oldest_message_timestamp_seconds", "No message that it kept is older; 0 if there are none."),
	}
	m.add(store.Removed{})
	return m
}

// add counts what was removed.
func (m *metrics) add(removed store.Removed) {
	for kind, count := range map[string]int64{
		"message": removed.Messages, "reaction": removed.Reactions, "membership": removed.Memberships, "conversation": removed.Conversations,
	} {
		m.removed.WithLabelValues(kind).Add(float64(count))
	}
}

// done records a sweep that has ended.
func (m *metrics) done(report Report) {
	m.last.Set(float64(time.Now().Unix()))
	m.seconds.Set(report.Took.Seconds())
	m.busy.Set(float64(report.Busy))
	m.oldest.Set(0)
	if !report.Oldest.IsZero() {
		m.oldest.Set(float64(report.Oldest.Unix()))
	}
}

// Collectors are the metrics of the worker.
func (w *Worker) Collectors() []prometheus.Collector {
	m := w.metrics
	return []prometheus.Collector{m.removed, m.last, m.seconds, m.busy, m.oldest}
}
