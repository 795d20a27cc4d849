package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/pprof" //nolint:gosec // G108: it registers its handlers at http.DefaultServeMux too, which Parley never serves
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

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

// Admin handles requests from the operator, on its own listener: the operator's page at /, GET /metrics (Prometheus), /livez, /readyz,
// and the profiles of /debug/pprof/. The server is ready if its database is available. An unavailable facilitator does not make it
// unready, because free operations and prices still work; /readyz reports it.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /{$}", s.operatorPage)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.readyz)
	// Not cmdline: flags can contain the password of the database.
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// readyz tells a load balancer whether the server takes calls.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
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
}
