package operator

import (
	"context"
	"log/slog"
	"strings"

	"golang.org/x/net/http/httpguts"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/tracing"
)

// traces are the settings of traces (OpenTelemetry, OTLP over HTTP).
type traces struct {
	Endpoint string  `name:"trace-endpoint" env:"PARLEY_TRACE_ENDPOINT" placeholder:"URL" help:"Collector of traces: OTLP over HTTP, such as http://127.0.0.1:4318. By default there are no traces, and they cost nothing."`
	Sample   float64 `name:"trace-sample" env:"PARLEY_TRACE_SAMPLE" default:"0.1" placeholder:"RATIO" help:"Part of the requests that is traced, from 0 to 1 (${default})."`
	Headers  string  `name:"trace-headers" env:"PARLEY_TRACE_HEADERS" secret:"" placeholder:"NAME=VALUE,…" help:"Headers of the requests to the collector, such as its API key."`
}

// config converts the settings. The error lists all invalid ones, without the headers.
func (t traces) config() (tracing.Config, error) {
	var wrong settings.Wrong
	if t.Endpoint != "" {
		wrong.HTTP("trace-endpoint", t.Endpoint, "the URL of an OTLP collector")
	}
	wrong.Check(t.Sample >= 0 && t.Sample <= 1, "trace-sample", t.Sample, "a number from 0 to 1")
	headers := map[string]string{}
	for pair := range strings.SplitSeq(t.Headers, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case pair == "" && t.Headers == "":
		case !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			wrong.Check(false, "trace-headers", settings.Hidden(t.Headers), "name=value, separated by commas")
		default:
			headers[name] = value
		}
	}
	return tracing.Config{Endpoint: t.Endpoint, Headers: headers, Ratio: t.Sample, Version: parley.Version()}, wrong.Err()
}

// start returns the tracer, or nil without a collector, and a function that stops it.
func (t traces) start(ctx context.Context, log *slog.Logger) (tracer *tracing.Tracer, stop func(), err error) {
	config, err := t.config()
	if err != nil || config.Endpoint == "" {
		return nil, func() {}, err
	}
	return tracing.New(ctx, config, log)
}
