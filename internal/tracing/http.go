package tracing

import (
	"net/http"
	"path"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// transport traces the requests to another system. The package otelhttp does the same, but it records the whole URL, in which operators
// have keys, and sends the trace context along.
type transport struct {
	http.RoundTripper
	tracer *Tracer
	system string
}

// Transport traces requests to a system, such as "facilitator", by the last element of their paths. A nil tracer returns next.
func (t *Tracer) Transport(system string, next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return &transport{next, t, system}
}

// RoundTrip sends a request.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if !sampled(request.Context()) {
		return t.RoundTripper.RoundTrip(request)
	}
	ctx := t.tracer.client(request.Context(), t.system+" "+path.Base(request.URL.Path),
		attribute.String("http.request.method", request.Method),
		attribute.String("server.address", request.URL.Host))
	span := trace.SpanFromContext(ctx)
	defer span.End()
	response, err := t.RoundTripper.RoundTrip(request.WithContext(ctx))
	switch {
	case err != nil:
		span.SetStatus(codes.Error, "")
	default:
		span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
		if response.StatusCode >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
	return response, err
}
