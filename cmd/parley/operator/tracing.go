package operator

import (
	"context"
	"log/slog"
	"os"
	"strconv"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/tracing"
)

// Traces have the variables that OpenTelemetry's programs share. OTEL_EXPORTER_OTLP_HEADERS is read by its exporter.
const (
	traceEndpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	traceRatio    = "OTEL_TRACES_SAMPLER_ARG"
)

// traceConfig returns where traces are sent, and which part of the requests is traced: a tenth if the environment does not say.
func traceConfig() (tracing.Config, error) {
	config := tracing.Config{Endpoint: os.Getenv(traceEndpoint), Ratio: 0.1, Version: parley.Version()}
	var wrong settings.Wrong
	if config.Endpoint != "" && (!settings.IsHTTP(config.Endpoint) || settings.HasUser(config.Endpoint)) {
		wrong = append(wrong,
			traceEndpoint+" in the environment is no URL of an OTLP collector, or has a user and a password; use one such as http://127.0.0.1:4318")
	}
	if text := os.Getenv(traceRatio); text != "" {
		var err error
		if config.Ratio, err = strconv.ParseFloat(text, 64); err != nil || !(config.Ratio >= 0 && config.Ratio <= 1) {
			wrong = append(wrong, traceRatio+" in the environment is "+settings.Shown(text)+"; use a number from 0 to 1")
		}
	}
	return config, wrong.Err()
}

// startTraces returns the tracer, or nil without a collector, and a function that stops it.
func startTraces(ctx context.Context, log *slog.Logger) (tracer *tracing.Tracer, stop func(), err error) {
	config, err := traceConfig()
	if err != nil || config.Endpoint == "" {
		return nil, func() {}, err
	}
	return tracing.New(ctx, config, log)
}
