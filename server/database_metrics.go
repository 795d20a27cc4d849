package server

import (
	"cmp"
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/buildinfo"
	"github.com/parley-chat/parley/store"
)

// databaseMetrics are collected from the database and its connection pools.
type databaseMetrics struct {
	store                                         *store.Store
	up, connections, limit, waits, waited, failed *prometheus.Desc
}

func newDatabaseMetrics(database *store.Store) *databaseMetrics {
	pool := []string{"pool"}
	return &databaseMetrics{
		store: database,
		up:    prometheus.NewDesc("parley_database_up", "0 while the database does not respond.", nil, nil),
		connections: prometheus.NewDesc("parley_database_connections",
			"Connections to the database by pool (batches, records) and state (in_use, idle).", []string{"pool", "state"}, nil),
		limit: prometheus.NewDesc("parley_database_connections_max", "The most connections of a pool.", pool, nil),
		waits: prometheus.NewDesc("parley_database_waits_total", "How often a call found no idle connection in the pool.", pool, nil),
		waited: prometheus.NewDesc("parley_database_wait_seconds_total",
			"How long calls waited for a connection of the pool, and got one.", pool, nil),
		failed: prometheus.NewDesc("parley_database_waits_failed_total", "How often a call got no connection of the pool in time.", pool, nil),
	}
}

// Describe sends the descriptions of all metrics.
func (d *databaseMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{d.up, d.connections, d.limit, d.waits, d.waited, d.failed} {
		to <- one
	}
}

// Collect pings the database and reads the figures of the pools.
func (d *databaseMetrics) Collect(to chan<- prometheus.Metric) {
	for _, pool := range d.store.Pools() {
		to <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(pool.InUse), pool.Name, "in_use")
		to <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(pool.Idle), pool.Name, "idle")
		to <- prometheus.MustNewConstMetric(d.limit, prometheus.GaugeValue, float64(pool.Max), pool.Name)
		to <- prometheus.MustNewConstMetric(d.waits, prometheus.CounterValue, float64(pool.Waits), pool.Name)
		to <- prometheus.MustNewConstMetric(d.failed, prometheus.CounterValue, float64(pool.Failed), pool.Name)
		to <- prometheus.MustNewConstMetric(d.waited, prometheus.CounterValue, pool.Waited.Seconds(), pool.Name)
	}
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
