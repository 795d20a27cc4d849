//go:build linux

package main

import (
	"context"
	"fmt"
)

// servers compares one server with two on the same database, which share the clients. Each server has a processor of its
// own. PostgreSQL and the load generator run on all of them.
func (d *dataset) servers(ctx context.Context) error {
	for _, scheme := range []struct {
		name     string
		settings []string
	}{{"voucher", []string{d.withChannels()}}, {"exact", nil}} {
		// Both offer the same resource, so a payment is good for either.
		settings := append(scheme.settings, "PARLEY_BASE_URL=http://parley.test")
		first, err := d.serveOn(ctx, 0, settings...)
		if err != nil {
			return err
		}
		second, err := d.serveOn(ctx, 1, settings...)
		if err != nil {
			return err
		}
		for _, name := range []string{sendOne, sendMany} {
			if !d.only.MatchString(name) {
				continue
			}
			o := d.named(name)
			title := fmt.Sprintf("%s, %s", name, scheme.name)
			seen, err := d.compare("Two servers", title, []int{16, 64}, 2*d.rounds,
				d.calls(ctx, "one server", o, first), d.calls(ctx, "two servers", o, first, second))
			if err != nil {
				return err
			}
			for _, clients := range []int{16, 64} {
				d.goal(fmt.Sprintf("%s, rate of two servers against one at %d clients", title, clients),
					seen[clients][1][perSecond]/seen[clients][0][perSecond], atLeast, 1)
			}
		}
		d.stopServers()
	}
	return nil
}
