//go:build linux

package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/store"
)

// The kinds of calls that the model knows, in the order of its figures.
var modelled = []string{sendMany, sendOne, nothingNew, wokenPoll, ownAccount, behindUnread, newest, agentSearch, wordSearch}

// mix is calls of several kinds at the same time, by so many clients each.
type mix struct {
	name    string
	clients map[string]int
	waiting int // agents who wait for the messages
}

// mixes are predicted from the figures of single kinds, and measured.
var mixes = []mix{
	{"quiet", map[string]int{nothingNew: 4, sendMany: 2, ownAccount: 2}, 0},
	{"chatty", map[string]int{sendMany: 32, sendOne: 8, nothingNew: 16, newest: 8}, 0},
	{"polling", map[string]int{nothingNew: 56, sendMany: 8}, 0},
	{"reading", map[string]int{wordSearch: 8, agentSearch: 8, newest: 8, behindUnread: 8}, 0},
	{"waking", map[string]int{sendMany: 32}, 2000},
}

func (m mix) total() (clients int) {
	for _, n := range m.clients {
		clients += n
	}
	return clients
}

// scaling measures what single kinds of calls use, predicts mixes of them, and measures the mixes.
func (d *dataset) scaling(ctx context.Context) error {
	server, err := d.serve(ctx, append(manyWait, d.withChannels())...)
	if err != nil {
		return err
	}
	measured := machineFigures{Machine: d.machine}
	if measured.Flush, err = flushTime(filepath.Join(d.folder, "flush")); err != nil {
		return err
	}
	for _, name := range modelled {
		o := d.named(name)
		seen, err := d.compare("Kinds of calls", name, d.clients, d.rounds, d.calls(ctx, "voucher", o, server))
		if err != nil {
			return err
		}
		var points []result
		for _, clients := range d.clients {
			points = append(points, seen[clients][0])
		}
		s, err := d.newSigner(ctx, server.url, o)
		if err != nil {
			return err
		}
		f := figures{Name: name, Price: float64(s.price) / 1e6}
		f.Server, f.PerBatch = fit(points, serverCPU)
		f.Database, f.PerCommit = fit(points, pgCPU)
		last := points[len(points)-1]
		f.Clients, f.WAL = last[clientCPU], last[wal]
		measured.Kinds = append(measured.Kinds, f)
	}
	// Long responses are erased after an hour, others stay.
	if err := d.pool.QueryRow(ctx, `
		SELECT (pg_total_relation_size('payments') - coalesce(sum(octet_length(response)) FILTER (WHERE octet_length(response) > $1), 0))
			/ CAST(count(*) AS float), (SELECT pg_total_relation_size('messages') / CAST(count(*) AS float) FROM messages)
		FROM payments`, store.ShortResponse).Scan(&measured.Payment, &measured.Message); err != nil {
		return err
	}
	w, sender, err := d.newWaiters(ctx, mixes[len(mixes)-1].waiting, server.url)
	if err != nil {
		return err
	}
	for _, m := range mixes {
		if m.waiting > 0 {
			if err := w.begin(ctx, server); err != nil {
				return err
			}
			defer w.end()
			if measured.Look, err = d.lookFor(ctx, w, server); err != nil {
				return err
			}
		}
		rates := map[string]float64{}
		if _, err := d.compare("Mixes", m.name, []int{m.total()}, d.rounds, side{"measured", func(int) (result, error) {
			return d.driveMix(ctx, m, server, w, sender, rates)
		}}); err != nil {
			return err
		}
		for name := range rates {
			rates[name] /= float64(d.rounds)
		}
		measured.Mixes = append(measured.Mixes, rates)
		d.goal(m.name+", predicted rate against the measured one, difference in percent", 100*measured.miss(len(measured.Mixes)-1), atMost,
			100*allowed)
	}
	if d.figures == "" {
		return nil
	}
	return measured.write(d.figures)
}

// fit returns what a metric is per call and per batch, if each point is the sum: the least squares of relative errors.
func fit(points []result, metric int) (perCall, perBatch float64) {
	var n, x, xx, y, xy float64 // sums, weighted
	for _, p := range points {
		weight := 1 / (p[metric] * p[metric])
		n, x, xx = n+weight, x+weight*p[writes], xx+weight*p[writes]*p[writes]
		y, xy = y+weight*p[metric], xy+weight*p[writes]*p[metric]
	}
	perBatch = max(0, (n*xy-x*y)/(n*xx-x*x))
	return (y - perBatch*x) / n, perBatch
}

// flushTime is how long a flush to the disk takes, in milliseconds: the median of some.
func flushTime(path string) (float64, error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path) //nolint:errcheck // in a folder that is removed
	defer file.Close()    //nolint:errcheck // as above
	var times []float64
	for range 200 {
		if _, err := file.WriteAt(make([]byte, 64<<10), int64(len(times)%16)<<16); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := syscall.Fdatasync(int(file.Fd())); err != nil { //nolint:gosec // a small number
			return 0, err
		}
		times = append(times, ms(time.Since(began)))
	}
	return middle(times), nil
}

// lookFor measures what it costs the database to look for a call that waits, in milliseconds. So few are looked for every 1.8 seconds.
func (d *dataset) lookFor(ctx context.Context, w *waiters, server *process) (float64, error) {
	const lasting = 8 * time.Second
	before, err := d.usage(ctx, []*process{server})
	if err != nil {
		return 0, err
	}
	time.Sleep(lasting)
	after, err := d.usage(ctx, []*process{server})
	d.fact("%d agents that wait need %.3f of a processor in the database and %.3f in the server.", len(w.agents),
		(after[pgCPU]-before[pgCPU])/ms(lasting), (after[serverCPU]-before[serverCPU])/ms(lasting))
	return (after[pgCPU] - before[pgCPU]) / lasting.Seconds() / float64(len(w.agents)) * 1.8, err
}

// driveMix is drive for a mix, and adds the rates of its kinds to rates. They include the polls that messages end.
func (d *dataset) driveMix(
	ctx context.Context, m mix, server *process, w *waiters, wake *signer, rates map[string]float64,
) (result, error) {
	limit := time.Duration(d.seconds) * time.Second
	var signers []*signer
	var clients, wanted []int
	var names []string
	each, used := min(agentsPerClient, perRole/m.total()), 0
	for _, name := range slices.Backward(modelled) { // searches first: they have the fewest requests
		n := m.clients[name]
		if n == 0 {
			continue
		}
		s := wake
		if m.waiting == 0 {
			o := d.named(name)
			o.requests = o.requests[used*each : (used+n)*each] // every caller has one client
			var err error
			if s, err = d.newSigner(ctx, server.url, o); err != nil {
				return result{}, err
			}
		}
		signers, names, clients, wanted, used = append(signers, s), append(names, name), append(clients, n), append(wanted, 20*n), used+n
	}
	samples := make([]sample, len(signers))
	run := func() (all sample, err error) {
		signed := make([][][]byte, len(signers))
		for i, s := range signers {
			if signed[i], err = s.sign(ctx, wanted[i]); err != nil {
				return all, err
			}
		}
		runtime.GC()
		sending := errgroup.Group{}
		for i, s := range signers {
			sending.Go(func() (err error) {
				samples[i], err = s.send(ctx, signed[i], clients[i], limit)
				return err
			})
		}
		err = sending.Wait()
		for i, s := range samples {
			n := len(s.latencies)
			wanted[i] = int(2*float64(n)*limit.Seconds()/s.took.Seconds()) + 100
			all.latencies, all.took = append(all.latencies, s.latencies...), max(all.took, s.took)
		}
		return all, err
	}
	if _, err := run(); err != nil {
		return result{}, err
	}
	before := w.answered()
	all, err := run()
	if err != nil {
		return result{}, err
	}
	for i, s := range samples {
		rates[names[i]] += float64(len(s.latencies)) / s.took.Seconds()
	}
	if m.waiting > 0 {
		rates[wokenPoll] += float64(w.answered()-before) / all.took.Seconds()
	}
	return all.result(), nil
}

// machineFigures are what the model is given.
type machineFigures struct {
	Machine string
	Flush   float64              // milliseconds
	Look    float64              // milliseconds of the database, to look once for a call that waits
	Payment float64              // bytes that stay of a payment
	Message float64              // bytes
	Kinds   []figures            // in the order of modelled
	Mixes   []map[string]float64 // in the order of mixes: measured calls per second, by kind
}

// kind returns the figures of a kind.
func (m machineFigures) kind(name string) (index int, f figures) {
	index = slices.IndexFunc(m.Kinds, func(f figures) bool { return f.Name == name })
	return index, m.Kinds[index]
}

// mix is the load of a mix that is measured: all on this machine.
func (m machineFigures) mix(of mix) load {
	_, charged := m.kind(ownAccount)
	l := load{kinds: m.Kinds, clients: make([]int, len(m.Kinds)), charge: charged.Database, processors: runtime.NumCPU(), servers: 1,
		flush: m.Flush, trip: 0.1, waiting: float64(of.waiting) * m.looks(), seconds: 10}
	for name, n := range of.clients {
		i, _ := m.kind(name)
		l.clients[i] = n
	}
	if of.waiting > 0 {
		l.wakes = wokenPoll
	}
	return l
}

// allowed is how far a predicted rate may be from the measured one.
const allowed = 0.25

// miss is how far the predicted rate of a mix is from the measured one.
func (m machineFigures) miss(mix int) float64 {
	return math.Abs(simulate(m.mix(mixes[mix])).rate/total(m.Mixes[mix]) - 1)
}

func total(rates map[string]float64) (sum float64) {
	for _, name := range modelled { // in one order, so that the sum is the same each time
		sum += rates[name]
	}
	return sum
}

func (m machineFigures) write(path string) error {
	text, err := json.MarshalIndent(m, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // everybody may read it
}
