//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
)

// measure measures the parts that are selected, or two builds.
func (b *bench) measure(ctx context.Context) error {
	if err := b.open(ctx); err != nil {
		return err
	}
	parts := []struct {
		name    string
		measure func(*dataset, context.Context) error
	}{
		{"operations", (*dataset).measureOperations}, {"peers", (*dataset).comparePeers}, {"growth", (*dataset).growth},
		{"servers", (*dataset).servers}, {"tracing", (*dataset).tracing}, {"retention", (*dataset).retention}, {"waiting", (*dataset).waiting},
	}
	if b.before != "" {
		parts = parts[:1]
		parts[0].name, parts[0].measure = "builds", (*dataset).builds
	}
	d, err := b.newDataset(ctx, "parley", b.program, b.scale)
	if err != nil {
		return err
	}
	if err := b.describe(ctx, d); err != nil {
		return err
	}
	for _, part := range parts {
		if !b.part.MatchString(part.name) {
			continue
		}
		note("%s", part.name)
		if err := part.measure(d, ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		b.stopServers()
	}
	return nil
}

// measureOperations compares calls from a payment channel with calls that are settled one by one.
func (d *dataset) measureOperations(ctx context.Context) error {
	channels, err := d.serve(ctx, d.withChannels())
	if err != nil {
		return err
	}
	exact, err := d.serve(ctx)
	if err != nil {
		return err
	}
	for _, o := range d.matching(&d.only) {
		if err := d.compare("Operations", o.name, d.clients, d.rounds,
			d.calls(ctx, "voucher", o, channels), d.calls(ctx, "exact", o, exact)); err != nil {
			return err
		}
	}
	return d.peakMemory("the server in this part", channels)
}

// peakMemory notes the peak memory of a server.
func (r *report) peakMemory(name string, server *process) error {
	status, err := server.stats.NewStatus()
	r.fact("Peak memory of %s: %.0f MiB.", name, float64(status.VmHWM)/(1<<20))
	return err
}

// calls is the side that sends an operation's requests to the servers, which share the clients.
func (d *dataset) calls(ctx context.Context, name string, o operation, servers ...*process) side {
	return side{name, func(clients int) (result, error) { return d.drive(ctx, o, clients, servers...) }}
}

// builds compares two builds of Parley. Each has a database of its own, with its own schema.
func (d *dataset) builds(ctx context.Context) error {
	before, err := d.newDataset(ctx, "before", d.before, d.scale)
	if err != nil {
		return err
	}
	for _, o := range d.matching(&d.only) {
		if err := d.compareWith(ctx, before, "Builds", o.name, 16, 64); err != nil {
			return err
		}
	}
	return nil
}

// growth compares the dataset with one of a tenth of its size.
func (d *dataset) growth(ctx context.Context) error {
	small, err := d.newDataset(ctx, "a tenth of the data", d.program, d.scale/10)
	if err != nil {
		return err
	}
	for _, name := range []string{sendMany, newest, nothingNew} {
		if err := d.compareWith(ctx, small, "Growth", name, 1, 16); err != nil {
			return err
		}
	}
	return nil
}

// compareWith compares an operation on two datasets, each served by the build that made it.
func (d *dataset) compareWith(ctx context.Context, before *dataset, part, operation string, clients ...int) error {
	var sides []side
	for _, d := range []*dataset{before, d} {
		server, err := d.serve(ctx, d.withChannels())
		if err != nil {
			return err
		}
		sides = append(sides, d.calls(ctx, d.name, d.named(operation), server))
	}
	return d.compare(part, operation, clients, d.rounds+1, sides...)
}

// tracing compares a server that traces no requests with servers that trace one of ten, and all. The collector forgets the spans.
func (d *dataset) tracing(ctx context.Context) error {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	// All offer the same resource, so a payment is good for each.
	var servers []*process
	for _, ratio := range []string{"", "0.1", "1"} {
		settings := []string{"PARLEY_BASE_URL=http://parley.test", d.withChannels()}
		if ratio != "" {
			settings = append(settings, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_TRACES_SAMPLER_ARG="+ratio)
		}
		server, err := d.serve(ctx, settings...)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	for _, o := range []operation{d.named(sendMany), d.named(newest)} {
		if !d.only.MatchString(o.name) {
			continue
		}
		if err := d.compare("Tracing", o.name, []int{16, 64}, 2*d.rounds, d.calls(ctx, "off", o, servers[0]),
			d.calls(ctx, "10 %", o, servers[1]), d.calls(ctx, "100 %", o, servers[2])); err != nil {
			return err
		}
	}
	return nil
}
