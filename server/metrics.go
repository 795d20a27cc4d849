package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/parley-chat/parley/store"
)

// metrics have operations and statuses as labels, never payers or content.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	limited  *prometheus.CounterVec
}

func newMetrics(database *store.Store) *metrics {
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
	m.registry.MustRegister(m.requests, m.seconds, m.limited, clock, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) request(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

// probeTime is how long /readyz waits for the probe of the facilitator. Load balancers give up after a second, and would take a
// server with a slow facilitator for dead.
const probeTime = 400 * time.Millisecond

// facilitatorState is the state of the facilitator for /readyz.
func facilitatorState(probed <-chan bool) string {
	select {
	case up := <-probed:
		if up {
			return "ok"
		}
	case <-time.After(probeTime):
	}
	return "unavailable"
}

// Admin handles requests from the operator, on its own listener: GET /metrics (Prometheus), /livez and /readyz. The
// server is ready if its database is available. An unavailable facilitator does not make it unready, because free
// operations and prices still work; /readyz reports it.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		state := struct {
			Ready       bool   `json:"ready"`
			Database    string `json:"database"`
			Facilitator string `json:"facilitator"`
			Draining    bool   `json:"draining,omitempty"`
		}{Ready: true, Database: "ok", Draining: s.draining.Load()}
		probed := make(chan bool, 1)
		go func() { probed <- s.payments.Ready() && s.payments.Probe(ctx) == nil }()
		w.Header().Set("Content-Type", "application/json")
		if s.waiting.Load() || !s.store.Ready(ctx) {
			state.Ready, state.Database = false, "unavailable"
		}
		if state.Draining {
			state.Ready = false
		}
		state.Facilitator = facilitatorState(probed)
		if !state.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(state)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}
