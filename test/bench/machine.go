//go:build linux

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/x402/evm"
)

// bench is one run: its plan, its report, and the PostgreSQL and the payment network that all measurements share.
type bench struct {
	plan
	report
	folder      string // for logs
	postgres    *embedded.Server
	facilitator *process
	datasets    []*dataset
	running     []*process // servers of the part that is measured
}

// authorizerFile has the key that signs claims of payment channels. It also seals stored responses.
const authorizerFile = "authorizer.key"

func (b *bench) open(ctx context.Context) (err error) {
	if b.folder, err = os.MkdirTemp("", "parley-bench-"); err != nil {
		return err
	}
	if err := os.Chmod(b.folder, 0o755); err != nil { // as root PostgreSQL runs as another user, who needs access
		return err
	}
	// Not Volatile: each response is on disk before it is sent.
	b.postgres, err = embedded.Start(ctx, embedded.Options{Folder: filepath.Join(b.folder, "postgres"), Progress: os.Stderr})
	if err != nil {
		return err
	}
	if b.facilitator, err = b.startSelf(ctx, asFacilitator); err != nil {
		return err
	}
	key, err := evm.GenerateKey()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.folder, authorizerFile), []byte(hex.EncodeToString(evm.FromECDSA(key))), 0o600)
}

func (b *bench) stopServers() {
	for _, server := range b.running {
		server.stop()
	}
	b.running = nil
}

// close ends what open has started, also after an error.
func (b *bench) close() error {
	b.stopServers()
	for _, d := range b.datasets {
		d.pool.Close()
	}
	if b.facilitator != nil {
		b.facilitator.stop()
	}
	var problem error
	if b.postgres != nil {
		problem = errors.Join(b.postgres.Stop(), os.RemoveAll(b.postgres.Folder()))
	}
	return errors.Join(problem, os.RemoveAll(b.folder))
}

// databaseCPU is the processor time that all processes of PostgreSQL have used, ended ones included.
func (b *bench) databaseCPU() (sum time.Duration, err error) {
	file, err := os.ReadFile(filepath.Join(b.postgres.Folder(), "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	text, _, _ := strings.Cut(string(file), "\n")
	postmaster, err := strconv.Atoi(text)
	if err != nil {
		return 0, err
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, process := range processes {
		switch stat, _ := process.Stat(); postmaster { // a process that has ended since has no IDs: the postmaster has its time
		case stat.PID:
			sum += cpuTime(stat) + time.Duration(stat.CUTime+stat.CSTime)*tick
		case stat.PPID:
			sum += cpuTime(stat)
		}
	}
	return sum, nil
}

// tick is the unit of /proc's times: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

func cpuTime(stat procfs.ProcStat) time.Duration { return time.Duration(stat.UTime+stat.STime) * tick }
