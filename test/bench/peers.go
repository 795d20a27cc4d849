//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// rivals are the calls that are compared with the peer, and the goals: their rate against the peer by clients, and their processor time
// against that of a send that is paid by voucher.
var rivals = []struct {
	name, operation string
	exact           bool
	rate            map[int]float64
	cpu             float64
}{
	{"send", sendMany, false, map[int]float64{1: 0.8, 16: 2, 64: 2.5}, 0},
	{"own account", ownAccount, false, map[int]float64{1: 0.8, 16: 1.5, 64: 2}, 1},
	{"unread", nothingNew, false, map[int]float64{1: 0.8, 16: 1.5, 64: 2}, 1},
	{"newest 50", newest, false, map[int]float64{1: 0.8, 16: 1.5, 64: 2}, 1.5},
	{"send, exact", sendMany, true, map[int]float64{16: 0.9}, 0},
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
	measured := rivals[:0:0]
	for _, r := range rivals {
		if !d.only.MatchString(r.operation) {
			continue
		}
		server := channels
		if r.exact {
			server = exact
		}
		measured, sides = append(measured, r), append(sides, d.calls(ctx, r.name, d.named(r.operation), server))
	}
	rounds := 2*d.rounds + 1
	if _, err := d.compare("Peers", "paid call", d.clients, rounds, sides...); err != nil {
		return err
	}
	compared := d.comparisons[len(d.comparisons)-len(d.clients):]
	for _, c := range compared {
		send := 0
		for i, r := range measured {
			if wanted, ok := r.rate[c.clients]; ok {
				d.goal(fmt.Sprintf("%s, rate against the peer, %d clients", r.name, c.clients), middle(c.ratios(i+1, perSecond)), atLeast, wanted)
			}
			if r.operation == sendMany && !r.exact {
				send = i + 1
			}
			if r.cpu > 0 && send > 0 && c.clients > 1 {
				d.goal(fmt.Sprintf("%s, processor time against a send, %d clients", r.name, c.clients), middle(c.ratiosTo(send, i+1, cpu)),
					atMost, r.cpu)
			}
		}
	}
	if err := d.compareFree(ctx, channels, rounds); err != nil || d.picture == "" || len(measured) < len(rivals) {
		return err
	}
	file, err := os.Create(d.picture)
	if err != nil {
		return err
	}
	drawPeers(file, compared, fmt.Sprintf("%s, %s. Clients, server, PostgreSQL and facilitator share the processors. Median of %d rounds.",
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
	for _, o := range []struct {
		name string
		most float64
	}{{sendMany, 1}, {newest, 1.3}, {nothingNew, 1.5}} {
		if !d.only.MatchString(o.name) {
			continue
		}
		if _, err := d.compare("Paid and free", o.name, []int{16}, rounds, d.calls(ctx, "free", d.named(o.name), free),
			d.calls(ctx, "voucher", d.named(o.name), channels)); err != nil {
			return err
		}
		d.goal(o.name+", processor time, paid : free, 16 clients", middle(d.comparisons[len(d.comparisons)-1].ratios(1, cpu)), atMost, o.most)
	}
	return nil
}
