//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// rivals are the calls that are compared with the peer.
var rivals = []struct {
	name, operation string
	exact           bool
}{{"send", sendMany, false}, {"own account", ownAccount, false}, {"unread", nothingNew, false}, {"newest 50", newest, false},
	{"send, exact", sendMany, true}}

// facilitators are what the peers are compared with.
var facilitators = []struct{ title, pauses string }{
	{"Facilitator on the same machine", "verify=0s&settle=0s"},
	{"Hosted facilitator: 60 ms to verify, 900 ms to settle", "verify=60ms&settle=900ms"},
}

// comparePeers compares calls of Parley with a constant response behind a minimal x402 middleware, and with a build without prices.
func (d *dataset) comparePeers(ctx context.Context) error {
	channels, err := d.serve(ctx, d.withChannels())
	if err != nil {
		return err
	}
	exact, err := d.serve(ctx)
	if err != nil {
		return err
	}
	peer, err := d.startSelf(ctx, asPeer, d.facilitator.url)
	if err != nil {
		return err
	}
	defer peer.stop()
	constant := d.calls(ctx, "peer", d.named(sendMany), peer)
	sides := []side{{"constant response", func(clients int) (result, error) {
		seen, err := constant.measure(clients)
		seen[cpu] -= seen[pgCPU] // it has no database: PostgreSQL still works for the side before
		seen[pgCPU], seen[wal], seen[writes] = 0, 0, 0
		return seen, err
	}}}
	for _, r := range rivals {
		server := channels
		if r.exact {
			server = exact
		}
		if d.only.MatchString(r.operation) {
			sides = append(sides, d.calls(ctx, r.name, d.named(r.operation), server))
		}
	}
	rounds := 2*d.rounds + 1
	var panels []panel
	for _, f := range facilitators {
		if err := d.facilitatorDoes(ctx, "/pauses?"+f.pauses); err != nil {
			return err
		}
		if err := d.compare("Peers", f.title, d.clients, rounds, sides...); err != nil {
			return err
		}
		panels = append(panels, panel{f.title, d.comparisons[len(d.comparisons)-len(d.clients):]})
	}
	if err := d.facilitatorDoes(ctx, "/pauses?"+facilitators[0].pauses); err != nil {
		return err
	}
	if err := d.compareFree(ctx, channels, rounds); err != nil || d.picture == "" || len(sides) <= len(rivals) {
		return err
	}
	file, err := os.Create(d.picture)
	if err != nil {
		return err
	}
	drawPeers(file, panels, fmt.Sprintf("%s, %s. Clients, server, PostgreSQL and facilitator share the processors. Median of %d rounds.",
		d.machine, time.Now().UTC().Format("2 January 2006"), rounds))
	return file.Close()
}

// compareFree compares calls that are paid by voucher with the same calls of a build without prices.
func (d *dataset) compareFree(ctx context.Context, channels *process, rounds int) error {
	if d.free == "" {
		d.fact("Paid calls are not compared with free ones: -free names no build without prices.")
		return nil
	}
	free, err := d.start(ctx, []string{d.withChannels()}, d.free, d.serving()...)
	if err != nil {
		return err
	}
	if s, err := d.newSigner(ctx, free.url, d.named(sendMany)); err != nil || s.required != nil {
		return fmt.Errorf("%s has prices: %w", d.free, err)
	}
	for _, name := range []string{sendMany, newest, nothingNew} {
		if !d.only.MatchString(name) {
			continue
		}
		if err := d.compare("Paid and free", name, []int{16}, rounds, d.calls(ctx, "free", d.named(name), free),
			d.calls(ctx, "voucher", d.named(name), channels)); err != nil {
			return err
		}
	}
	return nil
}
