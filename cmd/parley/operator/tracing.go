package operator

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/cmd/parley/settings"
)

// tracing sends spans of a part of the requests, from 0 to 1, to a collector. otelhttp and otelpgx make the spans.
type tracing struct {
	provider *sdk.TracerProvider
	ratio    float64
}

// traceRatio reads OpenTelemetry's variables: the part of the requests that is traced, 0 without a collector.
func traceRatio() (ratio float64, err error) {
	var wrong settings.Wrong
	collector, text := os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), cmp.Or(os.Getenv("OTEL_TRACES_SAMPLER_ARG"), "0.1")
	if collector != "" && (!settings.IsHTTP(collector) || settings.HasUser(collector)) {
		wrong = append(wrong, "OTEL_EXPORTER_OTLP_ENDPOINT in the environment is no URL of an OTLP collector, or has a user and a password; "+
			"use one such as http://127.0.0.1:4318")
	}
	if ratio, err = strconv.ParseFloat(text, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		wrong = append(wrong, "OTEL_TRACES_SAMPLER_ARG in the environment is "+settings.Shown(text)+"; use a number from 0 to 1")
	}
	if collector == "" {
		ratio = 0
	}
	return ratio, wrong.Err()
}

// startTracing returns nil if nothing is traced. A collector that does not respond costs spans.
func startTracing(ctx context.Context, log *slog.Logger) (*tracing, error) {
	ratio, err := traceRatio()
	if err != nil || ratio == 0 {
		return nil, err
	}
	client, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	return &tracing{ratio: ratio, provider: sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // handler samples
		sdk.WithBatcher(&exporter{SpanExporter: client, log: log, warn: rate.Sometimes{Interval: time.Minute}}),
		// No detectors: the one of the process reports the command line.
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "parley"), attribute.String("service.version", parley.Version()))),
	)}, nil
}

// stop exports what waits.
func (t *tracing) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = t.provider.Shutdown(ctx)
}

// handler ignores the trace context of callers: a stranger must not decide what is recorded.
func (t *tracing) handler(next http.Handler) http.Handler {
	return otelhttp.NewHandler(next, "request", otelhttp.WithTracerProvider(t.provider), otelhttp.WithServerName("parley"),
		otelhttp.WithSpanNameFormatter(func(operation string, _ *http.Request) string { return operation }),
		otelhttp.WithFilter(func(*http.Request) bool { return rand.Float64() < t.ratio })) //nolint:gosec // no secret
}

// transport names a request to another system after it.
func (t *tracing) transport(system string, next http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(next, otelhttp.WithSpanNameFormatter(func(string, *http.Request) string { return system }),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanFromContext(r.Context()).IsRecording() }))
}

func (t *tracing) database() *otelpgx.Tracer {
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(t.provider), otelpgx.WithDisableConnectionDetailsInAttributes())
}

// exporter drops what can have secrets: attributes that are not in exported, and the texts of errors, which are in events and statuses.
type exporter struct {
	sdk.SpanExporter
	log  *slog.Logger
	warn rate.Sometimes
}

// A statement has no values: GORM and pgx send them apart.
var exported = map[attribute.Key]bool{
	"http.request.method": true, "http.response.status_code": true, "server.address": true, "error.type": true, "db.system.name": true,
	"db.operation.name": true, "db.query.text": true, "pgx.sql_state": true, "pgx.rows_affected": true,
	"parley.request_id": true, "parley.code": true,
}

type filtered struct{ sdk.ReadOnlySpan }

func (s filtered) Attributes() []attribute.KeyValue {
	return slices.DeleteFunc(slices.Clone(s.ReadOnlySpan.Attributes()), func(a attribute.KeyValue) bool { return !exported[a.Key] })
}
func (s filtered) Events() []sdk.Event { return nil }
func (s filtered) Status() sdk.Status  { return sdk.Status{Code: s.ReadOnlySpan.Status().Code} }

// ExportSpans returns no error: the SDK would print it on standard error.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	kept := make([]sdk.ReadOnlySpan, len(spans))
	for i, span := range spans {
		kept[i] = filtered{span}
	}
	if err := e.SpanExporter.ExportSpans(ctx, kept); err != nil {
		_, cause, _ := strings.Cut(err.Error(), "/v1/traces") // without the URL, and without what the collector says
		cause, _, _ = strings.Cut(strings.TrimLeft(cause, `": `), " (body")
		e.warn.Do(func() {
			e.log.WarnContext(ctx, "traces are lost: the collector did not take them", "spans", len(spans), "error", cmp.Or(cause, "unavailable"))
		})
	}
	return nil
}
