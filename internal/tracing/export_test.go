package tracing

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// TestSpansAreBounded: a span has at most 1024 characters of a text, whoever wrote it.
func TestSpansAreBounded(t *testing.T) {
	t.Parallel()
	sent := make(chan []byte, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := gzip.NewReader(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		content, _ := io.ReadAll(body)
		sent <- content
	}))
	defer collector.Close()
	tracer, stop, err := New(t.Context(), Config{Endpoint: collector.URL, Ratio: 1}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracer.Root(context.Background(), "request", trace.SpanKindServer)
	span.Set("text", strings.Repeat("x", 5000))
	span.End(false)
	stop()
	if n := bytes.Count(<-sent, []byte("x")); n < maxAttribute || n > maxAttribute+100 {
		t.Errorf("the span has %d characters of the text, want %d", n, maxAttribute)
	}
}
