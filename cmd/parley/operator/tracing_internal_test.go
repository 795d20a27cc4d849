package operator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// TestSpansHaveNoSecrets: spans lack the query and the headers of a URL, the text of an error, and the values of a statement. They do not
// belong to a trace that a caller names.
//
//nolint:paralleltest // it sets the environment
func TestSpansHaveNoSecrets(t *testing.T) {
	const secret = "kumquat"
	sent := make(chan []byte, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		content, _ := io.ReadAll(r.Body)
		sent <- content
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_TRACES_SAMPLER_ARG", "1")
	traces, err := startTracing(t.Context(), slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	config, err := pgx.ParseConfig(storetest.URL(t))
	testkit.NoError(t, err)
	config.Tracer = traces.database()
	connection, err := pgx.ConnectConfig(t.Context(), config)
	testkit.NoError(t, err)
	defer func() { _ = connection.Close(context.WithoutCancel(t.Context())) }()

	handler := traces.handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if _, err := connection.Exec(ctx, "SELECT $1::text::int", secret); err == nil || !strings.Contains(err.Error(), secret) {
			t.Errorf("the statement returns %v", err)
		}
		failing := traces.transport("blockchain", roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New(secret) }))
		request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://user:"+secret+"@host.example/"+secret+"?key="+secret, http.NoBody)
		if _, err := failing.RoundTrip(request); err == nil { //nolint:bodyclose // there is none
			t.Error("the request succeeds")
		}
	}))
	request := httptest.NewRequestWithContext(t.Context(), secret, "/"+secret+"?q="+secret, http.NoBody)
	request.Header.Set("User-Agent", secret)
	request.Header.Set("Traceparent", fmt.Sprintf("00-%x-b7ad6b7169203331-01", "the caller's one"))
	handler.ServeHTTP(httptest.NewRecorder(), request)
	traces.stop(t.Context())
	text := <-sent
	if bytes.Contains(text, []byte(secret)) {
		t.Error("the spans have a secret")
	}
	if bytes.Contains(text, []byte("the caller's one")) {
		t.Error("the spans are a part of the caller's trace")
	}
	for _, want := range []string{"blockchain", "SELECT $1::text::int", "22P02", "request", "host.example"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the spans lack %q", want)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
