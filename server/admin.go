package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof" //nolint:gosec // G108: it registers its handlers at http.DefaultServeMux too, which Parley never serves
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// probeTime is how long /readyz waits for the probe of the facilitator. Load balancers give up after a second, and would take a server
	// with a slow facilitator for dead.
	probeTime  = 400 * time.Millisecond
	maxProfile = time.Minute // for a profile or a trace of the runtime
)

// Admin handles requests from the operator, on its own listener: the operator's page at /, GET /metrics (Prometheus), /livez, /readyz,
// and the profiles of /debug/pprof/. Under a name with a dot only /livez and /readyz can be called, and /metrics by what is no browser. The
// server is ready if its database is available. An unavailable facilitator does not make it unready, because free operations and prices
// still work; /readyz reports it.
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
		seconds, err := strconv.ParseFloat(r.URL.Query().Get("seconds"), 64)
		switch {
		case !byOperator(r):
			http.Error(w, "open this by an IP address, as localhost or by a name without a dot, and not from a page of another site\n",
				http.StatusForbidden)
		case strings.HasPrefix(r.URL.Path, "/debug/pprof/") && err == nil && seconds > maxProfile.Seconds():
			http.Error(w, fmt.Sprintf("a profile takes at most %.0f seconds; use a smaller value of seconds\n", maxProfile.Seconds()),
				http.StatusBadRequest)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

// byOperator reports whether the request comes from the operator, and not from a page of another site in the operator's browser. Load
// balancers and Prometheus may use any name.
func byOperator(r *http.Request) bool {
	switch {
	case r.URL.Path == "/livez", r.URL.Path == "/readyz":
		return true
	case !ownHost(r.Host):
		return r.URL.Path == "/metrics" && !byBrowser(r.Header)
	}
	return r.Header.Get("Sec-Fetch-Site") != "cross-site"
}

// byBrowser reports whether a browser sent the request, by what no script can change or leave out. Without TLS browsers send no
// Sec-Fetch-Site to names with a dot, but always deflate as an encoding, except with a range. Prometheus sends only gzip or identity.
func byBrowser(header http.Header) bool {
	sent := func(name string) bool { return header.Get(name) != "" }
	return slices.ContainsFunc([]string{"Sec-Fetch-Site", "Origin", "Referer", "Range"}, sent) ||
		strings.Contains(strings.Join(header.Values("Accept-Encoding"), ","), "deflate")
}

// ownHost reports whether a browser may show the listener's responses under this name. A site of somebody else can let its name resolve to
// the address of the listener (DNS rebinding) and then read what it returns. Such a name has a dot.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	return net.ParseIP(host) != nil || !strings.Contains(host, ".")
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
	}{Database: "ok", Facilitator: "unavailable", Draining: s.draining.Load()}
	probed := make(chan bool, 1)
	go func() { probed <- s.payments.Ready() && s.payments.Probe(ctx) == nil }()
	if s.waiting.Load() || !s.store.Ready(ctx) {
		state.Database = "unavailable"
	}
	select {
	case up := <-probed:
		if up {
			state.Facilitator = "ok"
		}
	case <-time.After(probeTime):
	}
	state.Ready = state.Database == "ok" && !state.Draining
	w.Header().Set("Content-Type", "application/json")
	if !state.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(state)
}
