//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/x402"
)

// machine is the PostgreSQL and the payment network that all measurements share.
type machine struct {
	folder      string // for scripts and logs
	postgres    *embedded.Server
	ledger      *devnet.Ledger
	facilitator *httptest.Server
	datasets    []*dataset
}

func newMachine(ctx context.Context) (_ *machine, err error) {
	m := &machine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.folder, err = os.MkdirTemp("", "parley-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(m.folder, 0o755); err != nil { // as root PostgreSQL runs as another user, who needs access
		return nil, err
	}
	// Not Volatile: each response is on disk before it is sent.
	m.postgres, err = embedded.Start(ctx, embedded.Options{Folder: filepath.Join(m.folder, "postgres"), Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	if m.ledger, err = devnet.OpenLedger(""); err != nil {
		return nil, err
	}
	m.facilitator = httptest.NewServer(m.settler())
	return m, nil
}

func (m *machine) close() error {
	for _, d := range m.datasets {
		d.pool.Close()
	}
	if m.facilitator != nil {
		m.facilitator.Close()
	}
	var problem error
	if m.postgres != nil {
		problem = errors.Join(m.postgres.Stop(), os.RemoveAll(m.postgres.Folder()))
	}
	return errors.Join(problem, os.RemoveAll(m.folder))
}

// settler is a facilitator that settles at once. It moves the money on the dev network's ledger, but does not repeat the
// checks of Parley: its time is not Parley's and is spent on the same machine.
func (m *machine) settler() http.Handler {
	routes := http.NewServeMux()
	routes.Handle("/", devnet.NewFacilitator(m.ledger))
	routes.HandleFunc("POST /settle", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			PaymentPayload struct {
				Payload x402.ExactPayload `json:"payload"`
			} `json:"paymentPayload"`
		}
		if err := json.UnmarshalRead(r.Body, &request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := request.PaymentPayload.Payload.Authorization
		amount, err := strconv.ParseUint(a.Value, 10, 64)
		if err == nil {
			err = m.ledger.Transfer(a.From, a.To, amount, a.Nonce, a.Nonce)
		}
		settled := x402.SettleResponse{Success: err == nil, Transaction: a.Nonce, Network: devnet.NetworkID, Payer: a.From}
		if err != nil {
			settled.ErrorReason = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, settled) // a caller that hung up retries
	})
	return routes
}

// address is the folder of PostgreSQL's socket, and its port.
func (m *machine) address() (host, port string) {
	config, err := pgx.ParseConfig(m.postgres.URL("postgres"))
	if err != nil {
		panic(err) // our own address
	}
	return config.Host, fmt.Sprint(config.Port)
}

// escape writes a value of a PostgreSQL URL's query, where + is not a space.
func escape(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }

// databaseCPU is the processor time that all processes of PostgreSQL have used, ended ones included.
func (m *machine) databaseCPU() (sum time.Duration, err error) {
	file, err := os.ReadFile(filepath.Join(m.postgres.Folder(), "data", "postmaster.pid"))
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
		stat, err := process.Stat()
		if err != nil {
			continue // it has ended since: the postmaster has its time
		}
		switch postmaster {
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
