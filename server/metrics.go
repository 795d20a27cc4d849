package server

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/parley-chat/parley/store"
)

// metrics have operations and statuses as labels, never payers or content.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	limited  *prometheus.CounterVec
}

func newMetrics(database *store.Store, running *atomic.Int64) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_requests_total",
			Help: "Requests by operation and status."}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_request_seconds",
			Help:    "How long requests take, settlement included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 90}}, []string{"operation"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_rate_limited_total",
			Help: "Calls rejected with 429, by limit: address, account, wallet or tan."}, []string{"limit"}),
	}
	clock := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_clock_difference_seconds",
		Help: "How far the clock of this machine is ahead of the database's."}, func() float64 { return database.ClockDifference().Seconds() })
	requests := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_requests_running", Help: "Requests that run now."},
		func() float64 { return float64(running.Load()) })
	m.registry.MustRegister(m.requests, m.seconds, m.limited, clock, requests,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsScheduler)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// announce creates the counters of an operation that alerts watch, and those of the limits. Prometheus takes no increase from a counter
// that appears with its first event.
func (m *metrics) announce(operations map[string]*operation) {
	for id := range operations {
		m.requests.WithLabelValues(id, "200")
		m.requests.WithLabelValues(id, "500")
		m.requests.WithLabelValues(id, "503")
	}
	for _, limit := range []string{"address", "account", "wallet", "tan"} {
		m.limited.WithLabelValues(limit)
	}
}

func (m *metrics) request(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
