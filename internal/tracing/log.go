package tracing

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// LogHandler adds trace_id and span_id to the lines of sampled requests.
type LogHandler struct{ slog.Handler }

// Handle writes a line.
func (h LogHandler) Handle(ctx context.Context, line slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsSampled() {
		line.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, line)
}

// WithAttrs is that of the handler.
func (h LogHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	return LogHandler{h.Handler.WithAttrs(attributes)}
}

// WithGroup is that of the handler.
func (h LogHandler) WithGroup(name string) slog.Handler { return LogHandler{h.Handler.WithGroup(name)} }
