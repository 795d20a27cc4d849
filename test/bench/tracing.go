//go:build linux

package main

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
)

// tracing compares a server that traces one of ten requests with one that traces none, and with one that traces all. The collector
// takes the spans and forgets them.
func (d *dataset) tracing(ctx context.Context) error {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	// All offer the same resource, so a payment is good for each.
	var servers []*process
	for _, settings := range [][]string{nil, {"OTEL_TRACES_SAMPLER_ARG=0.1"}, {"OTEL_TRACES_SAMPLER_ARG=1"}} {
		if settings != nil {
			settings = append(settings, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
		}
		server, err := d.serve(ctx, append(settings, "PARLEY_BASE_URL=http://parley.test", d.withChannels())...)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	var tenth, all []float64
	for _, o := range []operation{d.named(sendMany), d.named(newest)} {
		if !d.only.MatchString(o.name) {
			continue
		}
		clients := []int{16, 64}
		if _, err := d.compare("Tracing", o.name, clients, 2*d.rounds, d.calls(ctx, "off", o, servers[0]),
			d.calls(ctx, "10 %", o, servers[1]), d.calls(ctx, "100 %", o, servers[2])); err != nil {
			return err
		}
		for _, c := range d.comparisons[len(d.comparisons)-len(clients):] {
			tenth, all = append(tenth, c.ratios(1, perSecond)...), append(all, c.ratios(2, perSecond)...)
		}
	}
	if tenth == nil {
		return nil
	}
	// The effect is smaller than the noise of a round, so the goal is for all rounds together.
	mean, low, high := geometricMean(tenth)
	d.fact("Rate with 10 %% of the requests traced against none: %.3f, with 95 %% confidence %.3f to %.3f, in %d rounds.", mean, low, high,
		len(tenth))
	d.goal("rate with 10 % of the requests traced against none, all rounds", mean, atLeast, 0.95)
	mean, low, high = geometricMean(all)
	d.fact("With all requests traced: %.3f, %.3f to %.3f.", mean, low, high)
	return nil
}

// geometricMean returns the mean of ratios, and where it is with 95 percent confidence.
func geometricMean(ratios []float64) (mean, low, high float64) {
	n := float64(len(ratios))
	sum, squares := 0.0, 0.0
	for _, ratio := range ratios {
		sum += math.Log(ratio)
	}
	for _, ratio := range ratios {
		squares += math.Pow(math.Log(ratio)-sum/n, 2)
	}
	margin := 1.96 * math.Sqrt(squares/(n-1)/n)
	return math.Exp(sum / n), math.Exp(sum/n - margin), math.Exp(sum/n + margin)
}
