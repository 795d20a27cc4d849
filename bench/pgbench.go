//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// warmUp is how long pgbench runs before it counts: each client first prepares the statements of each script.
func warmUp(clients int) time.Duration {
	return 500*time.Millisecond + time.Duration(clients)*10*time.Millisecond
}

// pgbench finds the program of the newest PostgreSQL.
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
	defer os.RemoveAll(folder) //nolint:errcheck // the machine's folder is removed in the end
	host, port := d.address()
	arguments := []string{
		"-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients)), "-T", strconv.Itoa(seconds),
		"-l", "--log-prefix", filepath.Join(folder, "log"), "-h", host, "-p", port, "-U", "postgres",
	}
	for i, script := range scripts {
		path := filepath.Join(folder, fmt.Sprintf("script%02d.sql", i))
		if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
			return result{}, err
		}
		arguments = append(arguments, "-f", path)
	}
	before, err := d.usage(ctx, nil)
	if err != nil {
		return result{}, err
	}
	running, cancel := context.WithTimeout(ctx, time.Duration(seconds+30)*time.Second)
	defer cancel()
	output, err := exec.CommandContext(running, program, append(arguments, d.name)...).CombinedOutput()
	if err != nil || strings.Contains(string(output), "aborted") {
		return result{}, fmt.Errorf("pgbench: %w: %.2000s", errors.Join(err, running.Err()), output)
	}
	measured, all, err := readTransactions(folder, warmUp(clients))
	if err != nil {
		return result{}, err
	}
	seen, err := d.since(ctx, nil, before, all)
	seen.perSecond, seen.p50, seen.p99 = measured.perSecond, measured.p50, measured.p99
	return seen, err
}

// readTransactions reads pgbench's logs: client, number, microseconds, script, and when it ended, in seconds and
// microseconds. Transactions of the warm-up count only in all.
func readTransactions(folder string, warmUp time.Duration) (measured result, all int, err error) {
	logs, err := filepath.Glob(filepath.Join(folder, "log.*"))
	if err != nil {
		return result{}, 0, err
	}
	type transaction struct{ ended, took time.Duration }
	var transactions []transaction
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			return result{}, 0, err
		}
		for line := range strings.Lines(string(text)) {
			var client, number, took, script, seconds, micros time.Duration
			if n, err := fmt.Sscan(line, &client, &number, &took, &script, &seconds, &micros); n == 6 { // the last line may be torn
				transactions = append(transactions, transaction{ended: seconds*time.Second + micros*time.Microsecond, took: took * time.Microsecond})
			} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
				return result{}, 0, fmt.Errorf("read pgbench's log: %w", err)
			}
		}
	}
	slices.SortFunc(transactions, func(a, b transaction) int { return int(a.ended - b.ended) })
	var latencies []time.Duration
	var from, last time.Duration
	for i, transaction := range transactions {
		if i == 0 {
			from = transaction.ended + warmUp
		}
		if last = transaction.ended; last >= from {
			latencies = append(latencies, transaction.took)
		}
	}
	if len(latencies) == 0 {
		return result{}, 0, errors.New("pgbench logged no transaction after its warm-up")
	}
	slices.Sort(latencies)
	return result{
		perSecond: float64(len(latencies)) / (last - from).Seconds(), p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
	}, len(transactions), nil
}
