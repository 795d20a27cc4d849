package tracing

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

const (
	// maxWaiting is how many spans wait for the collector. Further ones are dropped: about 10 MiB at most.
	maxWaiting = 8192
	// maxSent is how many spans one request to the collector has.
	maxSent = 1024
	// maxAttribute is how many characters a text of a span has.
	maxAttribute = 1024
	// exportTime bounds a request to the collector, retryTime all attempts of one.
	exportTime = 5 * time.Second
	retryTime  = 10 * time.Second
	// stopTime bounds the export of what waits when the server stops.
	stopTime = 2 * time.Second
	// warnEvery is the pause between two warnings about the collector.
	warnEvery = time.Minute
)

// Config is where traces are sent.
type Config struct {
	Endpoint string  // URL of the OTLP/HTTP collector; without a path, /v1/traces
	Ratio    float64 // of the traces that are sampled, from 0 to 1
	Version  string  // of the program
}

// New returns a tracer, and a function that exports what waits and stops it. A collector that does not respond costs spans, and a
// warning a minute, and nothing else.
func New(ctx context.Context, config Config, log *slog.Logger) (t *Tracer, stop func(), err error) {
	endpoint, err := url.Parse(config.Endpoint)
	if err != nil {
		return nil, nil, errors.New("the URL of the collector is invalid")
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = "/v1/traces"
	}
	client, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint.String()),
		otlptracehttp.WithTimeout(exportTime), otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: exportTime,
			MaxElapsedTime: retryTime}))
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w", err)
	}
	var instance [8]byte
	_, _ = rand.Read(instance[:])
	limits := sdk.NewSpanLimits()
	limits.AttributeValueLengthLimit = maxAttribute
	provider := sdk.NewTracerProvider(
		sdk.WithSampler(sdk.AlwaysSample()), // Root samples
		sdk.WithBatcher(&exporter{SpanExporter: client, log: log}, sdk.WithMaxQueueSize(maxWaiting), sdk.WithMaxExportBatchSize(maxSent)),
		sdk.WithRawSpanLimits(limits),
		// No detectors: the one of the process reports the command line.
		sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "parley"), attribute.String("service.version", config.Version),
			attribute.String("service.instance.id", hex.EncodeToString(instance[:])))),
	)
	return &Tracer{provider.Tracer("github.com/parley-chat/parley"), config.Ratio}, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		_ = provider.Shutdown(stopping)
	}, nil
}

// exporter logs failures of the collector.
type exporter struct {
	sdk.SpanExporter
	log *slog.Logger

	mu     sync.Mutex
	warned time.Time
}

// ExportSpans sends spans. It returns no error: the SDK would print it on standard error.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && time.Since(e.warned) > warnEvery {
		e.warned = time.Now()
		e.log.WarnContext(ctx, "traces are lost: the collector did not take them", "spans", len(spans), "error", causeOf(err))
	}
	return nil
}

// causeOf returns the error without the URL of the collector and without what the collector says.
func causeOf(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err.Error()
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	_, status, found := strings.Cut(text, "/v1/traces: ")
	if !found {
		return "it refused them"
	}
	status, _, _ = strings.Cut(status, " (")
	return status
}
