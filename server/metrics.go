package server

import (
	"cmp"
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/buildinfo"
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

// databaseMetrics are collected from the database and its connection pool.
type databaseMetrics struct {
	store                                         *store.Store
	up, connections, limit, waits, waited, failed *prometheus.Desc
}

func newDatabaseMetrics(database *store.Store) *databaseMetrics {
	return &databaseMetrics{
		store:       database,
		up:          prometheus.NewDesc("parley_database_up", "0 while the database does not respond.", nil, nil),
		connections: prometheus.NewDesc("parley_database_connections", "Connections to the database by state (in_use, idle).", []string{"state"}, nil),
		limit:       prometheus.NewDesc("parley_database_connections_max", "The most connections to the database.", nil, nil),
		waits:       prometheus.NewDesc("parley_database_waits_total", "How often a call found no idle connection.", nil, nil),
		waited:      prometheus.NewDesc("parley_database_wait_seconds_total", "How long calls waited for a connection, and got one.", nil, nil),
		failed:      prometheus.NewDesc("parley_database_waits_failed_total", "How often a call got no connection in time.", nil, nil),
	}
}

// Describe sends the descriptions of all metrics.
func (d *databaseMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.up, d.connections, d.limit, d.waits, d.waited, d.failed} {
		to <- one
	}
}

// Collect pings the database and reads the figures of the pool.
func (d *databaseMetrics) Collect(to chan<- prometheus.Metric) {
	pool := d.store.Pool()
	to <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(pool.InUse), "in_use")
	to <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(pool.Idle), "idle")
	to <- prometheus.MustNewConstMetric(d.limit, prometheus.GaugeValue, float64(pool.Max))
	to <- prometheus.MustNewConstMetric(d.waits, prometheus.CounterValue, float64(pool.Waits))
	to <- prometheus.MustNewConstMetric(d.failed, prometheus.CounterValue, float64(pool.Failed))
	to <- prometheus.MustNewConstMetric(d.waited, prometheus.CounterValue, pool.Waited.Seconds())
	ctx, cancel := context.WithTimeout(context.Background(), pingTime)
	defer cancel()
	up := 1.0
	if d.store.Ping(ctx) != nil {
		up = 0
	}
	to <- prometheus.MustNewConstMetric(d.up, prometheus.GaugeValue, up)
}

// buildInfo is always 1; its labels say which program runs.
func buildInfo() prometheus.Collector {
	build := buildinfo.Read()
	labels := prometheus.Labels{"version": parley.Version(), "revision": cmp.Or(build.Commit, "unknown"), "go": cmp.Or(build.Go, "unknown"),
		"schema": strconv.FormatInt(store.SchemaVersion(), 10)}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "parley_build_info", Help: "The program: version, revision, Go version, and the schema that it needs.", ConstLabels: labels,
	}, func() float64 { return 1 })
}
