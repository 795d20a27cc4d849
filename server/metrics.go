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

// What becomes of a payment, as the label outcome says it.
const (
	outcomeDelivered     = "delivered"     // settled and delivered
	outcomeRepeated      = "repeated"      // answered out of the ledger
	outcomeRefused       = "refused"       // by the facilitator; nothing was taken
	outcomeUnclear       = "unclear"       // an attempt without a clear answer; it will be made again
	outcomeUndeliverable = "undeliverable" // settled, but refused by the operation's rules meanwhile
	outcomeNotSent       = "not_sent"      // the facilitator was not reached, or did not listen; nothing was taken
)

// metrics are what an operator watches. Labels are operations and outcomes, never who paid or what was said.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	payments *prometheus.CounterVec
	revenue  *prometheus.CounterVec
	settling *prometheus.HistogramVec
	limited  *prometheus.CounterVec
}

func newMetrics(database *store.Store, facilitator *guard) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_requests_total",
			Help: "Requests by operation and status."}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_request_seconds",
			Help:    "How long requests take, settlement included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 90}}, []string{"operation"}),
		payments: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_payments_total",
			Help: "Payments by operation and what became of them."}, []string{"operation", "outcome"}),
		revenue: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_revenue_atomic_units_total",
			Help: "Settled money in atomic units of the token (a millionth of a dollar), by operation."}, []string{"operation"}),
		settling: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_facilitator_seconds",
			Help:    "How long the facilitator takes to settle, by whether it gave a verdict.",
			Buckets: []float64{.05, .1, .25, .5, 1, 2, 3, 5, 10, 30, 60, 90}}, []string{"verdict"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_rate_limited_total",
			Help: "Calls that were answered 429, by the limit that they reached: address, account, wallet or tan."}, []string{"limit"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.payments, m.revenue, m.settling, m.limited, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_facilitator_up",
			Help: "0 while the facilitator is taken to be away."}, func() float64 {
			if facilitator.ready() {
				return 1
			}
			return 0
		}),
		&openPayments{database, prometheus.NewDesc("parley_payments_open",
			"Payments in the ledger that an operator should see come to an end, by state.", []string{"state"}, nil)})
	return m
}

func (m *metrics) request(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

func (m *metrics) payment(row *store.Payment, outcome string) {
	m.payments.WithLabelValues(row.Operation, outcome).Inc()
	switch outcome {
	case outcomeDelivered, outcomeUndeliverable:
		if row.State != store.PaymentUndeliverable { // redeemed: the money was counted then
			m.revenue.WithLabelValues(row.Operation).Add(float64(row.Amount))
		}
	}
}

// openPayments counts in the ledger when it is asked.
type openPayments struct {
	store *store.Store
	desc  *prometheus.Desc
}

func (o *openPayments) Describe(to chan<- *prometheus.Desc) { to <- o.desc }

func (o *openPayments) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	counts, err := o.store.CountOpenPayments(ctx)
	if err != nil {
		return // no number is better than a wrong one
	}
	for state, count := range counts {
		to <- prometheus.MustNewConstMetric(o.desc, prometheus.GaugeValue, float64(count), state)
	}
}

// Admin answers those who run the server, on a listener of their own: GET /metrics (Prometheus), /livez and /readyz.
// The server is ready while its database answers; that the facilitator is away does not take it out of service,
// because free operations and prices still work, but /readyz says so.
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
		}{true, "ok", "ok"}
		if !s.facilitator.ready() || s.facilitator.probe(ctx) != nil {
			state.Facilitator = "away"
		}
		w.Header().Set("Content-Type", "application/json")
		if s.store.Ping(ctx) != nil {
			state.Ready, state.Database = false, "away"
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
