//go:build !noserver

package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// collector takes spans by OTLP over HTTP.
type collector struct {
	*httptest.Server

	mu     sync.Mutex
	spans  []*trace.Span
	text   strings.Builder // everything that was sent, as JSON
	header http.Header     // of the last request
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
		c.header = r.Header
		c.text.WriteString(protojson.Format(&sent))
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

// TestTraces: a traced server sends the spans of requests, statements, facilitator and blockchain. None has a secret or a message, and a
// caller's traceparent is ignored. The log has the ids of the spans.
func TestTraces(t *testing.T) {
	t.Parallel()
	const headerSecret = "the collector's key"
	collector := newCollector(t)
	server, _ := serveIn(t, append(traced(collector.URL), "OTEL_EXPORTER_OTLP_HEADERS=X-Collector="+url.PathEscape(headerSecret)),
		storetest.URL(t), "--authorizer-key", strings.Repeat("5a", 32), "--drain-time", "0s")
	w := newSecretWitness(t, server)
	w.add("the collector's key", headerSecret, nil)
	w.add("the authorizer's key", strings.Repeat("5a", 32), nil)
	alice, bob := newUser(t, w.URL, "PARLEY_WALLET_KEY="+devnet.Accounts()[6].PrivateKey), newUser(t, w.URL,
		"PARLEY_WALLET_KEY="+devnet.Accounts()[7].PrivateKey)
	tracedJourney(t, w, alice, bob)
	server.register(t, 5, "carol") // pays with scheme exact
	strange, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/agent/me", nil)
	strange.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	response, err := http.DefaultClient.Do(strange)
	testkit.NoError(t, err)
	_ = response.Body.Close()
	long, _ := http.NewRequestWithContext(t.Context(), strings.Repeat("LONG", 1000), server.URL+"/agent/me", nil)
	if response, err = http.DefaultClient.Do(long); err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	server.stop(t)
	if strings.Contains(server.logs.String(), "LONGLONG") {
		t.Error("the log has the method that a caller made up")
	}

	collector.mu.Lock()
	defer collector.mu.Unlock()
	secrets, counts := w.known()
	if counts["an API key"] < 2 || counts["a TAN"] < 2 || counts["a payment"] < 8 || counts["a message"] < 2 {
		t.Errorf("the test has seen too few secrets: %v", counts)
	}
	text := newHaystack(collector.text.String())
	for _, one := range secrets {
		if text.has(one.text) {
			t.Errorf("the spans contain %s", one.name)
		}
	}
	if got := collector.header.Get("X-Collector"); got != headerSecret {
		t.Errorf("the collector gets the header %q", got)
	}
	if text := collector.text.String(); strings.Contains(text, "LONGLONG") || !strings.Contains(text, `"_OTHER"`) {
		t.Error("the spans have the method that a caller made up")
	}
	names := map[string]int{}
	for _, span := range collector.spans {
		names[span.GetName()]++
		if id := hex.EncodeToString(span.GetTraceId()); id == "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s is a part of the caller's trace", span.GetName())
		}
	}
	for _, want := range []string{
		"POST /chat/private/send", "GET /agent/me", "SELECT", "WITH", "pool.acquire", "facilitator", "blockchain",
	} {
		if names[want] == 0 {
			t.Errorf("there is no span %q; there are %v", want, names)
		}
	}
	checkTraceIDs(t, server, collector.spans)
}

// tracedJourney makes calls of all kinds. Its messages and descriptions are secrets of the witness.
func tracedJourney(t *testing.T, w *secretWitness, alice, bob *user) {
	t.Helper()
	words := []string{"kumquat-one", "kumquat-two", "kumquat-three", "kumquat-four"}
	for _, word := range words {
		w.add("a message", word, nil)
	}
	alice.run("init", "--username", "alice", "--yes")
	bob.run("init", "--username", "bob", "--yes")
	for _, i := range []int{6, 7} {
		w.add("a wallet's key", devnet.Accounts()[i].PrivateKey, nil)
	}
	alice.run("send", "bob", words[0])
	alice.run("send", "bob", words[1])
	bob.run("inbox")
	alice.run("profile", "edit", "--description", words[2])
	alice.run("call", "searchPrivateMessages", fmt.Sprintf(`{"chat_id":%q,"query":%q}`, alice.chatWith("bob"), words[3]))
	alice.try("call", "createAccount", `{"username":"x","tan":"y"}`)
	alice.run("key", "rotate")
}

// chatWith returns the id of the private chat.
func (u *user) chatWith(name string) string {
	u.t.Helper()
	contacts, _ := u.run("contacts")["contacts"].([]any)
	for _, one := range contacts {
		if contact, _ := one.(map[string]any); contact["name"] == name {
			chat, _ := contact["chat_id"].(string)
			return chat
		}
	}
	return ""
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
	if lines < 10 {
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
