package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestProfiles: the admin listener has profiles, without the command line, whose flags can contain secrets.
func TestProfiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/debug/pprof/": "200 ", "/debug/pprof/heap?debug=1": "200 heap profile", "/debug/pprof/goroutine?debug=1": "200 goroutine profile",
		"/debug/pprof/cmdline": "404 ",
	} {
		if got := w.admin(path); !strings.HasPrefix(got, want) {
			t.Errorf("%s returns %.60q, want %q", path, got, want)
		}
	}
}

// TestAdminKeepsOtherSitesOut: a page of another site in the operator's browser cannot read or start anything on the admin listener. Load
// balancers and Prometheus may use any name. A profile cannot run for long.
func TestAdminKeepsOtherSitesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, test := range []struct {
		url, site string
		want      int
	}{
		{"http://rebound.example:8404/debug/pprof/", "same-origin", 403}, {"http://rebound.example:8404/debug/pprof/heap", "", 403},
		{"http://rebound.example:8404/debug/pprof/profile?seconds=1", "", 403}, {"http://rebound.example:8404/nothing", "", 403},
		{"http://rebound.example:8404/livez/../debug/pprof/heap", "", 403},
		{"http://127.0.0.1:8404/debug/pprof/trace?seconds=1", "cross-site", 403}, {"http://localhost:8404/", "cross-site", 403},
		{"http://localhost:8404/", "none", 200}, {"http://10.1.2.3:8404/debug/pprof/heap", "", 200},
		{"http://parley.monitoring.svc:8404/metrics", "", 200}, {"http://parley.monitoring.svc:8404/livez", "", 200},
		{"http://parley.monitoring.svc:8404/readyz", "", 200},
		{"http://rebound.example:8404/metrics", "same-origin", 403}, {"http://10.1.2.3:8404/metrics", "cross-site", 403},
		{"http://10.1.2.3:8404/metrics", "none", 200},
		{"http://127.0.0.1:8404/debug/pprof/profile?seconds=61", "", 400}, {"http://127.0.0.1:8404/debug/pprof/trace?seconds=1e9", "", 400},
		{"http://127.0.0.1:8404/debug/pprof/heap?seconds=61", "", 400}, {"http://127.0.0.1:8404/debug/pprof/trace?seconds=0.01", "", 200},
	} {
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second) // a profile that should not run
		request := httptest.NewRequestWithContext(ctx, http.MethodGet, test.url, nil)
		request.Header.Set("Sec-Fetch-Site", test.site)
		recorder := httptest.NewRecorder()
		w.server.Admin().ServeHTTP(recorder, request)
		stop()
		if recorder.Code != test.want {
			t.Errorf("%s (%s): %d %.100q, want %d", test.url, test.site, recorder.Code, recorder.Body, test.want)
		}
	}
}

// TestMetricsOfBrowsers: under a name with a dot Prometheus reads the metrics, and a page that a browser shows does not, whatever headers
// its script sets.
func TestMetricsOfBrowsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		headers []string
		want    int
	}{
		"Prometheus": {[]string{"Accept", "application/openmetrics-text", "Accept-Encoding", "gzip", "User-Agent",
			"Prometheus/3.5.0"}, 200},
		"Prometheus without compression": {[]string{"Accept-Encoding", "identity", "User-Agent", "Prometheus/3.5.0"}, 200},
		"curl":                           {[]string{"Accept", "*/*", "User-Agent", "curl/8.5.0"}, 200},
		"a browser":                      {[]string{"Accept-Encoding", "gzip, deflate", "User-Agent", "Mozilla/5.0"}, 403},
		"a script":                       {[]string{"Accept-Encoding", "gzip, deflate", "User-Agent", "Prometheus/3.5.0"}, 403},
		"a script that asks for a range": {[]string{"Accept-Encoding", "identity", "Range", "bytes=0-", "User-Agent", "Prometheus/3.5.0"}, 403},
		"a link":                         {[]string{"Referer", "http://rebound.example:8404/"}, 403},
		"another origin":                 {[]string{"Origin", "http://rebound.example:8404"}, 403},
	} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://rebound.example:8404/metrics", nil)
		for i := 0; i < len(test.headers); i += 2 {
			request.Header.Set(test.headers[i], test.headers[i+1])
		}
		recorder := httptest.NewRecorder()
		w.server.Admin().ServeHTTP(recorder, request)
		if recorder.Code != test.want {
			t.Errorf("%s: %d, want %d", name, recorder.Code, test.want)
		}
	}
}
