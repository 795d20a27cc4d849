//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// result is what one measurement saw.
type result [metrics]float64

const (
	perSecond = iota
	p50       // milliseconds
	p99       // milliseconds
	serverCPU // of the server, milliseconds per request
	pgCPU     // of PostgreSQL, milliseconds per request
	wal       // bytes per request
	writes    // transactions that write, per request
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

// measure adds what each request has used of the servers and of PostgreSQL.
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
	return seen, err
}

// usage is what the servers and PostgreSQL have used so far.
func (d *dataset) usage(ctx context.Context, servers []*process) (u result, err error) {
	for _, server := range servers {
		u[serverCPU] += ms(server.cpu())
	}
	cpu, err := d.databaseCPU()
	if err != nil {
		return u, err
	}
	u[pgCPU] = ms(cpu)
	err = d.pool.QueryRow(ctx, `
		SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float),
			CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS float)`).Scan(&u[wal], &u[writes])
	return u, err
}

// readResponse reads one response. A status other than 200 is an error, because then something else was measured. net/http's client
// would take more time than some of the servers.
func readResponse(r *bufio.Reader) error {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return fmt.Errorf("status %d: %.300s", response.StatusCode, body)
	}
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
