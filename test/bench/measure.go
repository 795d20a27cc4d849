//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/procfs"
)

// result is what one measurement saw.
type result [metrics]float64

const (
	perSecond = iota
	p50       // milliseconds
	p99       // milliseconds
	cpu       // of server, PostgreSQL and facilitator, milliseconds per request
	serverCPU
	pgCPU
	facilitatorCPU
	wal       // bytes per request
	writes    // transactions that write, per request
	clientCPU // of the load generator
	metrics
)

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// sample is the requests of one measurement.
type sample struct {
	latencies []time.Duration
	took      time.Duration
}

// result returns the sample's rate and latencies.
func (s sample) result() (r result) {
	slices.Sort(s.latencies)
	n := len(s.latencies)
	r[perSecond], r[p50], r[p99] = float64(n)/s.took.Seconds(), ms(s.latencies[n/2]), ms(s.latencies[n*99/100])
	return r
}

// measure adds what each request has used of the servers, of PostgreSQL and of the facilitator.
func (d *dataset) measure(ctx context.Context, servers []*process, run func() (sample, error)) (result, error) {
	before, err := d.usage(ctx, servers)
	if err != nil {
		return before, err
	}
	s, err := run()
	if err != nil {
		return before, err
	}
	after, err := d.usage(ctx, servers)
	seen := s.result()
	for metric := serverCPU; metric < metrics; metric++ {
		seen[metric] = (after[metric] - before[metric]) / float64(len(s.latencies))
	}
	seen[cpu] = seen[serverCPU] + seen[pgCPU] + seen[facilitatorCPU]
	return seen, err
}

// usage is what they have used so far.
func (d *dataset) usage(ctx context.Context, servers []*process) (u result, err error) {
	for _, server := range servers {
		u[serverCPU] += ms(server.cpu())
	}
	u[facilitatorCPU] = ms(d.facilitator.cpu())
	self, err := procfs.Self()
	if err != nil {
		return u, err
	}
	u[clientCPU] = ms((&process{stats: self}).cpu())
	used, err := d.databaseCPU()
	if err != nil {
		return u, err
	}
	u[pgCPU] = ms(used)
	err = d.pool.QueryRow(ctx, `
		SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float),
			CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS float)`).Scan(&u[wal], &u[writes])
	return u, err
}

// readResponse reads one response. A status other than the wanted one is an error, because then something else was measured. net/http's
// client would take more time than some of the servers.
func readResponse(r *bufio.Reader, wanted int, body *bytes.Buffer) error {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body.Reset()
	if _, err = body.ReadFrom(response.Body); err == nil && response.StatusCode != wanted {
		err = fmt.Errorf("status %d: %.300s", response.StatusCode, body)
	}
	return err
}
