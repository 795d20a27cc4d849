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
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/x402"
)

// result is what one measurement saw.
type result struct {
	perSecond float64
	p50, p99  time.Duration
	serverCPU time.Duration // of the server's processes, per request
	pgCPU     time.Duration // of PostgreSQL, likewise
	wal       float64       // bytes per request, likewise
}

// till signs payments for an operation by what a server offers for it.
type till struct {
	required *x402.PaymentRequired // nil: the server takes none
}

// ask asks a server what an operation costs.
func ask(ctx context.Context, server string, o operation) (*till, error) {
	if o.unpaid {
		return &till{}, nil
	}
	request, err := http.NewRequestWithContext(ctx, o.method, server+o.path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusPaymentRequired {
		return &till{}, nil
	}
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	return &till{required}, err
}

// write writes a request with its payment, ready for the wire.
func (t *till) write(host string, o operation, r request) ([]byte, error) {
	var wire bytes.Buffer
	fmt.Fprintf(&wire, "%s %s HTTP/1.1\r\nHost: %s\r\nX-API-KEY: %s\r\n", o.method, r.target, host, r.caller.key)
	if t.required != nil {
		payload, err := x402.Sign(r.caller.wallet, t.required.Accepts[0], &t.required.Resource, t.required.Extensions, time.Now())
		if err != nil {
			return nil, err
		}
		header, err := x402.EncodePaymentPayload(payload)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&wire, "%s: %s\r\n", x402.HeaderPaymentSignature, header)
	}
	if o.method == http.MethodPost {
		fmt.Fprintf(&wire, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(r.body))
	}
	wire.WriteString("\r\n")
	wire.Write(r.body)
	return wire.Bytes(), nil
}

// sign prepares n requests, each with a payment of its own, before any clock starts.
func (t *till) sign(host string, o operation, n int) ([][]byte, error) {
	signed := make([][]byte, n)
	signing := errgroup.Group{}
	workers := runtime.NumCPU()
	for worker := range workers {
		signing.Go(func() (err error) {
			for i := worker; i < n; i += workers {
				// In no order: requests of one agent or one chat should not come together.
				if signed[i], err = t.write(host, o, o.requests[i*797%len(o.requests)]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return signed, signing.Wait()
}

// load is how hard an operation is used.
type load struct {
	clients int
	time    time.Duration
	status  int // of a good answer
}

// drive sends an operation's requests to the servers, each client on its own connection, and measures. The clients are
// spread over the servers. It begins with a short run that warms up and shows how many payments to sign.
func (h *house) drive(ctx context.Context, servers []*process, o operation, l load) (result, error) {
	t, err := ask(ctx, servers[0].url, o)
	if err != nil {
		return result{}, err
	}
	host := servers[0].host()
	warm, err := t.sign(host, o, max(100, 6*l.clients))
	if err != nil {
		return result{}, err
	}
	latencies, took, err := hammer(ctx, servers, warm, l)
	if err != nil {
		return result{}, err
	}
	signed, err := t.sign(host, o, int(1.5*float64(len(latencies))*l.time.Seconds()/took.Seconds())+100)
	if err != nil {
		return result{}, err
	}
	runtime.GC() // now, not during the measurement
	before, err := h.used(ctx, servers)
	if err != nil {
		return result{}, err
	}
	if latencies, took, err = hammer(ctx, servers, signed, l); err != nil {
		return result{}, err
	}
	after, err := h.used(ctx, servers)
	if err != nil {
		return result{}, err
	}
	seen := after.since(before, len(latencies))
	seen.perSecond, seen.p50, seen.p99 = float64(len(latencies))/took.Seconds(), quantile(latencies, 0.5), quantile(latencies, 0.99)
	return seen, nil
}

// usage is what servers and PostgreSQL have used up to a moment.
type usage struct {
	server, pg time.Duration
	wal        float64
}

func (h *house) used(ctx context.Context, servers []*process) (u usage, err error) {
	for _, server := range servers {
		u.server += server.used()
	}
	if u.pg, err = h.databaseUsed(); err != nil {
		return u, err
	}
	u.wal, err = one[float64](ctx, h.pool, `SELECT CAST(pg_current_wal_insert_lsn() - '0/0' AS float)`)
	return u, err
}

// since is what was used by each of n requests.
func (u usage) since(before usage, n int) result {
	each := time.Duration(n)
	return result{serverCPU: (u.server - before.server) / each, pgCPU: (u.pg - before.pg) / each, wal: (u.wal - before.wal) / float64(n)}
}

// hammer sends prepared requests until they or the time run out and returns the sorted latencies. One wrong answer ends
// it: what is measured must be what was meant.
func hammer(ctx context.Context, servers []*process, signed [][]byte, l load) ([]time.Duration, time.Duration, error) {
	var next atomic.Int64
	sending, ctx := errgroup.WithContext(ctx)
	all := make([][]time.Duration, l.clients)
	began := time.Now()
	for client := range l.clients {
		sending.Go(func() error {
			address, err := url.Parse(servers[client%len(servers)].url)
			if err != nil {
				return err
			}
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address.Host)
			if err != nil {
				return err
			}
			defer connection.Close() //nolint:errcheck // nothing is lost
			answers := bufio.NewReaderSize(connection, 64<<10)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				sent := time.Now()
				if i >= len(signed) || sent.Sub(began) > l.time {
					return nil
				}
				if _, err := connection.Write(signed[i]); err != nil {
					return err
				}
				status, body, err := readAnswer(answers)
				if err != nil {
					return err
				}
				if status != l.status {
					return fmt.Errorf("answered %d, want %d: %.300s", status, l.status, body)
				}
				all[client] = append(all[client], time.Since(sent))
			}
			return nil
		})
	}
	err := sending.Wait()
	took := time.Since(began)
	latencies := slices.Concat(all...)
	slices.Sort(latencies)
	if err == nil && len(latencies) == 0 {
		err = errors.New("nothing was sent")
	}
	return latencies, took, err
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// readAnswer reads one HTTP/1.1 answer. net/http's client would use more time than some of the servers; of errors only,
// the body is returned.
func readAnswer(r *bufio.Reader) (status int, body []byte, err error) {
	length, chunked := -1, false
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return 0, nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if first {
			if len(line) < 12 {
				return 0, nil, errors.New("no HTTP status line")
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, nil, err
			}
			continue
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, nil, err
			}
		}
		chunked = chunked || bytes.Equal(line, []byte("Transfer-Encoding: chunked"))
	}
	for {
		if chunked {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return 0, nil, err
			}
			size, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
			if err != nil {
				return 0, nil, err
			}
			length = int(size)
		}
		if status >= http.StatusBadRequest && length > 0 {
			part := make([]byte, length)
			if _, err := io.ReadFull(r, part); err != nil {
				return 0, nil, err
			}
			body = append(body, part...)
		} else if _, err := r.Discard(max(length, 0)); err != nil {
			return 0, nil, err
		}
		if !chunked {
			return status, body, nil
		}
		last := length == 0
		if _, err := r.Discard(2); err != nil {
			return 0, nil, err
		}
		if last {
			return status, body, nil
		}
	}
}
