//go:build !noserver

package main

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu    sync.Mutex
	spans []*trace.Span
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var sent collect.ExportTraceServiceRequest
		content, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(content, &sent)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, resource := range sent.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				c.spans = append(c.spans, scope.GetSpans()...)
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// traced is the environment of a server that sends traces of all requests.
func traced(collector string) []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector, "OTEL_TRACES_SAMPLER_ARG=1"}
}

// TestTraces: a traced server sends the spans of requests, statements, facilitator and blockchain, and the log has their ids. Neither has a
// method that a caller made up.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector := newCollector(t)
	server, _ := serveIn(t, traced(collector.URL), storetest.URL(t), "--drain-time", "0s")
	server.register(t, 5, "carol")
	long, err := http.NewRequestWithContext(t.Context(), strings.Repeat("LONG", 1000), server.URL+"/agent/me", nil)
	testkit.NoError(t, err)
	response, err := http.DefaultClient.Do(long)
	testkit.NoError(t, err)
	_ = response.Body.Close()
	server.stop(t)

	collector.mu.Lock()
	defer collector.mu.Unlock()
	names := map[string]int{}
	for _, span := range collector.spans {
		names[span.GetName()]++
		if strings.Contains(span.String(), "LONGLONG") {
			t.Errorf("a span has the method that a caller made up: %s", span.GetName())
		}
	}
	if strings.Contains(server.logs.String(), "LONGLONG") {
		t.Error("the log has the method that a caller made up")
	}
	for _, want := range []string{"POST /register/create_account", "SELECT", "INSERT", "pool.acquire", "facilitator", "blockchain"} {
		if names[want] == 0 {
			t.Errorf("there is no span %q; there are %v", want, names)
		}
	}
	checkTraceIDs(t, server, collector.spans)
}

// checkTraceIDs: each line of a request has the id of its server span.
func checkTraceIDs(t *testing.T, server *process, spans []*trace.Span) {
	t.Helper()
	ids := map[string]bool{}
	for _, span := range spans {
		ids[hex.EncodeToString(span.GetTraceId())+hex.EncodeToString(span.GetSpanId())] = true
	}
	lines := 0
	for line := range strings.Lines(server.logs.String()) {
		var fields struct {
			Msg  string
			Span string `json:"span_id"`
			ID   string `json:"trace_id"`
		}
		testkit.NoError(t, json.Unmarshal([]byte(line), &fields))
		if fields.Msg == "request" {
			lines++
			if !ids[fields.ID+fields.Span] {
				t.Errorf("a line of the log has no span: %s", line)
			}
		}
	}
	if lines < 3 {
		t.Errorf("the log has %d lines of requests", lines)
	}
}

// TestCollectorAway: without its collector a server works and ends as ever, and warns once.
func TestCollectorAway(t *testing.T) {
	t.Parallel()
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer collector.Close()
	server, _ := serveIn(t, traced(collector.URL), storetest.URL(t), "--drain-time", "0s")
	server.register(t, 2, "carol")
	eventually(t, "the server warns", func() bool { return server.logLine(t, "traces are lost: the collector did not take them") != nil })
	server.register(t, 3, "dave")
	server.Signal(syscall.SIGTERM)
	if !server.HasEnded(time.Minute) || server.Err != nil {
		t.Errorf("it ends with %v", server.Err)
	}
	if n := strings.Count(server.logs.String(), "traces are lost"); n != 1 {
		t.Errorf("it warned %d times", n)
	}
	if line := server.logLine(t, "traces are lost: the collector did not take them"); line["error"] != "401 Unauthorized" {
		t.Errorf("the warning is %v", line)
	}
}
