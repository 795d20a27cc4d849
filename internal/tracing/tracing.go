// Package tracing records where the time of sampled requests goes, and sends it to a collector by OTLP. Spans have names, durations,
// statuses and identifiers of the ledger, never the text of an error, a parameter of a statement, a header or a body.
package tracing

import (
	"context"
	"math/rand/v2"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Tracer starts spans. A nil Tracer starts none.
type Tracer struct {
	tracer trace.Tracer
	ratio  float64
}

// Span is a part of a sampled request. The zero Span does nothing.
type Span struct{ span trace.Span }

// Root starts a trace if it is sampled. It ignores a span in ctx.
func (t *Tracer) Root(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	if t == nil || rand.Float64() >= t.ratio { //nolint:gosec // which traces are sampled is no secret
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Start starts a part of a sampled trace. In other contexts it does nothing.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil || !sampled(ctx) {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, name)
	return ctx, Span{span}
}

// client is Start for a call of another system.
func (t *Tracer) client(ctx context.Context, name string, attributes ...attribute.KeyValue) context.Context {
	ctx, _ = t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	return ctx
}

func sampled(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// Caller is the span of a call that waits for a batch; the zero value if it is not sampled.
type Caller struct{ span trace.Span }

// Caller returns the span in ctx.
func (t *Tracer) Caller(ctx context.Context) Caller {
	if t == nil || !sampled(ctx) {
		return Caller{}
	}
	return Caller{trace.SpanFromContext(ctx)}
}

// Shared starts a span for work that several calls wait for. It is a part of the first sampled one, and links to the others.
func (t *Tracer) Shared(ctx context.Context, name string, n int, caller func(i int) Caller) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	var links []trace.Link
	for i := range n {
		if of := caller(i); of.span != nil {
			links = append(links, trace.Link{SpanContext: of.span.SpanContext()})
		}
	}
	if links == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(ctx, links[0].SpanContext), name, trace.WithLinks(links[1:]...),
		trace.WithAttributes(attribute.Int("parley.batch.calls", n)))
	return ctx, Span{span}
}

// With returns ctx with the span of other.
func With(ctx, other context.Context) context.Context {
	if !sampled(other) {
		return ctx
	}
	return trace.ContextWithSpan(ctx, trace.SpanFromContext(other))
}

// Recording reports whether the span is recorded.
func (s Span) Recording() bool { return s.span != nil }

// Name renames the span.
func (s Span) Name(name string) {
	if s.span != nil {
		s.span.SetName(name)
	}
}

// Set sets an attribute, unless the value is "".
func (s Span) Set(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt sets an attribute.
func (s Span) SetInt(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// End ends the span. The text of an error is in the log only, under the same trace_id.
func (s Span) End(failed bool) {
	if s.span == nil {
		return
	}
	if failed {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}
