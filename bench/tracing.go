//go:build linux

package main

import (
	"context"
	"io"
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
	for _, settings := range [][]string{nil, {"PARLEY_TRACE_SAMPLE=0.1"}, {"PARLEY_TRACE_SAMPLE=1"}} {
		if settings != nil {
			settings = append(settings, "PARLEY_TRACE_ENDPOINT="+collector.URL)
		}
		server, err := d.serve(ctx, append(settings, "PARLEY_BASE_URL=http://parley.test", d.withChannels())...)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
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
			d.goal(o.name+", rate with 10 % of the requests traced against none", middle(c.ratios(1, perSecond)), atLeast, 0.95)
		}
	}
	return nil
}
