//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/x402"
)

// result is what one measurement saw.
type result struct {
	perSecond float64
	p50, p99  time.Duration
	serverCPU time.Duration // of the server, per request
	pgCPU     time.Duration // of PostgreSQL, per request
	wal       float64       // bytes per request
	writes    float64       // transactions that write, per request
}

// load is how an operation is called.
type load struct {
	clients int
	time    time.Duration
	status  int // of a good response
}

// drive sends an operation's requests and measures. Each client has its own connection. A short run first warms up
// and shows how many payments to sign.
func (d *dataset) drive(ctx context.Context, server *process, o operation, l load) (result, error) {
	s, err := newSigner(ctx, server.url, o)
	if err != nil {
		return result{}, err
	}
	warm, err := s.sign(max(100, 6*l.clients))
	if err != nil {
		return result{}, err
	}
	latencies, took, err := send(ctx, s.host, warm, l)
	if err != nil {
		return result{}, err
	}
	signed, err := s.sign(int(1.5*float64(len(latencies))*l.time.Seconds()/took.Seconds()) + 100)
	if err != nil {
		return result{}, err
	}
	runtime.GC() // now, not during the measurement
	before, err := d.usage(ctx, server)
	if err != nil {
		return result{}, err
	}
	if latencies, took, err = send(ctx, s.host, signed, l); err != nil {
		return result{}, err
	}
	seen, err := d.since(ctx, server, before, len(latencies))
	seen.perSecond, seen.p50, seen.p99 = float64(len(latencies))/took.Seconds(), quantile(latencies, 0.5), quantile(latencies, 0.99)
	return seen, err
}

// usage is what the server, if there is one, and PostgreSQL have used so far.
func (d *dataset) usage(ctx context.Context, server *process) (u result, err error) {
	if server != nil {
		u.serverCPU = server.cpu()
	}
	if u.pgCPU, err = d.databaseCPU(); err != nil {
		return u, err
	}
	err = d.pool.QueryRow(ctx, `
		SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float), CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS float)`).Scan(&u.wal, &u.writes)
	return u, err
}

// since is what each of n requests has used.
func (d *dataset) since(ctx context.Context, server *process, before result, n int) (result, error) {
	after, err := d.usage(ctx, server)
	return result{
		serverCPU: (after.serverCPU - before.serverCPU) / time.Duration(n), pgCPU: (after.pgCPU - before.pgCPU) / time.Duration(n),
		wal: (after.wal - before.wal) / float64(n), writes: (after.writes - before.writes) / float64(n),
	}, err
}

// signer writes an operation's requests, each with the payment that the server asks for.
type signer struct {
	host      string
	operation operation
	required  *x402.PaymentRequired // nil: the operation is free
}

func newSigner(ctx context.Context, url string, o operation) (*signer, error) {
	s := &signer{host: strings.TrimPrefix(url, "http://"), operation: o}
	if o.unpaid {
		return s, nil
	}
	request, err := http.NewRequestWithContext(ctx, o.method, url+o.path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusPaymentRequired {
		s.required, err = x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	}
	return s, err
}

// sign writes n requests, each with its own payment, before the measurement starts.
func (s *signer) sign(n int) ([][]byte, error) {
	signed := make([][]byte, n)
	signing := errgroup.Group{}
	workers := runtime.NumCPU()
	for worker := range workers {
		signing.Go(func() (err error) {
			for i := worker; i < n; i += workers {
				// Not in their order: requests of one agent or one chat should not meet.
				if signed[i], err = s.write(s.operation.requests[i*797%len(s.operation.requests)]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return signed, signing.Wait()
}

func (s *signer) write(r request) ([]byte, error) {
	var wire bytes.Buffer
	fmt.Fprintf(&wire, "%s %s HTTP/1.1\r\nHost: %s\r\nX-API-KEY: %s\r\n", s.operation.method, r.target, s.host, r.caller.key)
	if s.required != nil {
		payload, err := x402.Sign(r.caller.wallet, s.required.Accepts[0], &s.required.Resource, s.required.Extensions, time.Now())
		if err != nil {
			return nil, err
		}
		header, err := x402.EncodePaymentPayload(payload)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&wire, "%s: %s\r\n", x402.HeaderPaymentSignature, header)
	}
	if s.operation.method == http.MethodPost {
		fmt.Fprintf(&wire, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(r.body))
	}
	fmt.Fprintf(&wire, "\r\n%s", r.body)
	return wire.Bytes(), nil
}

// send sends written requests until they or the time run out, and returns the sorted latencies. A response with another
// status is an error, because then something else was measured.
func send(ctx context.Context, host string, requests [][]byte, l load) ([]time.Duration, time.Duration, error) {
	var next atomic.Int64
	sending, ctx := errgroup.WithContext(ctx)
	all := make([][]time.Duration, l.clients)
	began := time.Now()
	for client := range l.clients {
		sending.Go(func() error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", host)
			if err != nil {
				return err
			}
			defer connection.Close() //nolint:errcheck // nothing is lost
			responses := bufio.NewReaderSize(connection, 64<<10)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				sent := time.Now()
				if i >= len(requests) || sent.Sub(began) > l.time {
					return nil
				}
				if _, err := connection.Write(requests[i]); err != nil {
					return err
				}
				status, body, err := readResponse(responses)
				if err != nil {
					return err
				}
				if status != l.status {
					return fmt.Errorf("status %d, want %d: %.300s", status, l.status, body)
				}
				all[client] = append(all[client], time.Since(sent))
			}
			return ctx.Err()
		})
	}
	err := sending.Wait()
	took := time.Since(began)
	latencies := slices.Concat(all...)
	slices.Sort(latencies)
	if err == nil && len(latencies) == 0 {
		err = errors.New("no request was sent")
	}
	return latencies, took, err
}

// readResponse reads one response, and of an error its body. net/http's client would take more time than some of the
// servers.
func readResponse(r *bufio.Reader) (status int, body []byte, err error) {
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	if response.StatusCode >= http.StatusBadRequest {
		body, err = io.ReadAll(response.Body)
	} else {
		_, err = io.Copy(io.Discard, response.Body)
	}
	return response.StatusCode, body, err
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
