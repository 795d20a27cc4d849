//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// sample is the requests of one measurement. all includes those of a warm-up, which have no latency here.
type sample struct {
	latencies []time.Duration
	took      time.Duration
	all       int
}

// result returns the sample's rate and latencies.
func (s sample) result() (r result) {
	slices.Sort(s.latencies)
	n := len(s.latencies)
	r[perSecond], r[p50], r[p99] = float64(n)/s.took.Seconds(), ms(s.latencies[n/2]), ms(s.latencies[n*99/100])
	return r
}

// measure adds what each request has used of the servers, if there are any, and of PostgreSQL.
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
		seen[metric] = (after[metric] - before[metric]) / float64(s.all)
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

// warmUp is how long pgbench runs before it counts: each client first prepares the statements of each script.
func warmUp(clients int) time.Duration {
	return 500*time.Millisecond + time.Duration(clients)*10*time.Millisecond
}

// pgbench returns the path of the newest installed pgbench.
func pgbench() (string, error) {
	if installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench"); installed != nil {
		return slices.Max(installed), nil // versions have two digits
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errors.New("there is no pgbench here: it comes with PostgreSQL (Debian: apt-get install postgresql)")
	}
	return path, nil
}

// limit runs the scripts on the database as fast as pgbench can.
func (d *dataset) limit(ctx context.Context, scripts []string, clients, seconds int) (result, error) {
	program, err := pgbench()
	if err != nil {
		return result{}, err
	}
	seconds += int(warmUp(clients) / time.Second)
	folder, err := os.MkdirTemp(d.folder, "pgbench-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the folder above is removed in the end
	arguments := []string{
		"-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)), "-T", strconv.Itoa(seconds),
		"-l", "--log-prefix", filepath.Join(folder, "log"),
	}
	for i, script := range scripts {
		path := filepath.Join(folder, fmt.Sprintf("script%02d.sql", i))
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			return result{}, err
		}
		arguments = append(arguments, "-f", path)
	}
	running, cancel := context.WithTimeout(ctx, time.Duration(seconds+30)*time.Second)
	defer cancel()
	return d.measure(ctx, nil, func() (sample, error) {
		output, err := exec.CommandContext(running, program, append(arguments, d.url())...).CombinedOutput()
		if err != nil || strings.Contains(string(output), "aborted") {
			return sample{}, fmt.Errorf("pgbench: %w: %.2000s", errors.Join(err, running.Err()), output)
		}
		return readTransactions(folder, warmUp(clients))
	})
}

// readTransactions reads pgbench's logs: client, number, microseconds, script, and when it ended, in seconds and
// microseconds. Transactions of the warm-up count only in all.
func readTransactions(folder string, warmUp time.Duration) (s sample, err error) {
	logs, err := filepath.Glob(filepath.Join(folder, "log.*"))
	if err != nil {
		return s, err
	}
	type transaction struct{ ended, took time.Duration }
	var transactions []transaction
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return s, err
		}
		for line := range strings.Lines(string(text)) {
			var client, number, took, script, seconds, micros time.Duration
			if n, err := fmt.Sscan(line, &client, &number, &took, &script, &seconds, &micros); n == 6 {
				transactions = append(transactions, transaction{seconds*time.Second + micros*time.Microsecond, took * time.Microsecond})
			} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) { // the last line may be torn
				return s, fmt.Errorf("read pgbench's log: %w", err)
			}
		}
	}
	s.all = len(transactions)
	slices.SortFunc(transactions, func(a, b transaction) int { return int(a.ended - b.ended) })
	for _, transaction := range transactions {
		if from := transactions[0].ended + warmUp; transaction.ended >= from {
			s.latencies, s.took = append(s.latencies, transaction.took), transaction.ended-from
		}
	}
	if len(s.latencies) == 0 {
		return s, errors.New("pgbench logged no transaction after its warm-up")
	}
	return s, nil
}
