//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// warmUp is how long pgbench runs before it counts: each client prepares each script's statements once.
func warmUp(clients int) time.Duration {
	return 500*time.Millisecond + time.Duration(clients)*10*time.Millisecond
}

// pgbench finds the program beside the newest PostgreSQL.
func pgbench() (string, error) {
	if installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench"); installed != nil {
		return slices.MaxFunc(installed, func(a, b string) int { return versionOf(a) - versionOf(b) }), nil
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errors.New("there is no pgbench here: it comes with PostgreSQL (Debian: apt-get install postgresql)")
	}
	return path, nil
}

func versionOf(path string) int {
	number, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return number
}

// limit runs the scripts on the database, as fast as pgbench can.
func (h *house) limit(ctx context.Context, scripts []string, clients int, seconds int) (result, error) {
	program, err := pgbench()
	if err != nil {
		return result{}, err
	}
	seconds += int(warmUp(clients) / time.Second)
	folder, err := os.MkdirTemp(h.folder, "pgbench-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // the whole folder goes in the end
	host, port := h.address()
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
	before, err := h.used(ctx, nil)
	if err != nil {
		return result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+30)*time.Second)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, append(arguments, h.name)...).CombinedOutput()
	if err != nil || strings.Contains(string(output), "aborted") {
		return result{}, fmt.Errorf("pgbench: %w: %.2000s", errors.Join(err, ctx.Err()), output)
	}
	after, err := h.used(ctx, nil)
	if err != nil {
		return result{}, err
	}
	measured, all, err := readTransactions(folder, warmUp(clients))
	if err != nil {
		return result{}, err
	}
	used := after.since(before, all)
	measured.pgCPU, measured.wal = used.pgCPU, used.wal
	return measured, nil
}

// readTransactions reads pgbench's logs: client, number, microseconds, script, and the time of the end in seconds and
// microseconds. What ended before the warm-up was over counts only in all.
func readTransactions(folder string, warmUp time.Duration) (measured result, all int, err error) {
	logs, err := filepath.Glob(filepath.Join(folder, "log.*"))
	if err != nil {
		return result{}, 0, err
	}
	type transaction struct{ ended, took time.Duration }
	var transactions []transaction
	for _, log := range logs {
		file, err := os.Open(log)
		if err != nil {
			return result{}, 0, err
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var numbers [6]int64
			fields := strings.Fields(lines.Text())
			if len(fields) < len(numbers) {
				continue // the last line may be torn
			}
			for i := range numbers {
				if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
					return result{}, 0, errors.Join(err, file.Close())
				}
			}
			transactions = append(transactions, transaction{
				ended: time.Duration(numbers[4])*time.Second + time.Duration(numbers[5])*time.Microsecond, took: time.Duration(numbers[2]) * time.Microsecond,
			})
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return result{}, 0, err
		}
	}
	if len(transactions) == 0 {
		return result{}, 0, errors.New("pgbench logged no transaction")
	}
	slices.SortFunc(transactions, func(a, b transaction) int { return int(a.ended - b.ended) })
	from := transactions[0].ended + warmUp
	var latencies []time.Duration
	for _, transaction := range transactions {
		if transaction.ended >= from {
			latencies = append(latencies, transaction.took)
		}
	}
	if len(latencies) == 0 {
		return result{}, 0, errors.New("pgbench did nothing after its warm-up")
	}
	lasted := transactions[len(transactions)-1].ended - from
	slices.Sort(latencies)
	return result{
		perSecond: float64(len(latencies)) / lasted.Seconds(), p50: quantile(latencies, 0.5), p99: quantile(latencies, 0.99),
	}, len(transactions), nil
}
