//go:build attack

package attack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// mostConnections is how many of one attacker's connections a server may keep open.
const mostConnections = 2048

// connect opens a bare connection from the attacker's address.
func (x *trial) connect(ctx context.Context) (net.Conn, error) {
	return x.connectFrom(ctx, x.address)
}

func (x *trial) connectFrom(ctx context.Context, address string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 5 * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", x.s.listen)
	if err != nil && ctx.Err() == nil {
		x.tally.add(0, "", 0, "")
	}
	return connection, err
}

// response reads what the server says on a bare connection, if it says something.
func (x *trial) response(connection net.Conn, patience time.Duration) {
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		x.tally.add(0, "", 0, "")
		return
	}
	body, _ := io.ReadAll(response.Body)
	response.Body.Close()
	x.tally.add(response.StatusCode, "", len(body), "a bare connection")
}

// TestHostileHeaders: headers above 32 KiB are refused, and 150 connections whose headers never end take no memory.
func TestHostileHeaders(t *testing.T) {
	x := newTrial(t)
	for _, kilobytes := range []int{100, 500, 1_500} {
		r, err := x.attacker().do(t.Context(), http.MethodPost, x.s.url+sendPath, "", "X-Long", strings.Repeat("a", kilobytes<<10))
		if err == nil && r.Status != http.StatusRequestHeaderFieldsTooLarge && r.Status != http.StatusBadRequest {
			t.Errorf("%d KiB of headers: %d, want 431", kilobytes, r.Status)
		}
	}
	many := strings.Repeat("\r\nX-A: b", 20_000) // 160 KB in short lines
	if connection, err := x.connect(t.Context()); err == nil {
		fmt.Fprintf(connection, "GET /health HTTP/1.1\r\nHost: parley%s\r\n\r\n", many)
		_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
		if response, err := http.ReadResponse(bufio.NewReader(connection), nil); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				t.Errorf("20,000 headers: %d, want 431", response.StatusCode)
			}
		}
		hangUp(connection)
	}
	long := strings.Repeat("a", 1900<<10)
	x.measure("150 unfinished headers of 1.9 MiB", func(ctx context.Context) {
		flood(ctx, 150, 1_000, func(ctx context.Context, _, _ int) {
			connection, err := x.connect(ctx)
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				return
			}
			defer hangUp(connection)
			_ = connection.SetWriteDeadline(time.Now().Add(5 * time.Second))
			if _, err := fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: parley\r\nX-Long: %s", sendPath, long); err == nil {
				stop := context.AfterFunc(ctx, func() { _ = connection.SetReadDeadline(time.Now()) })
				defer stop()
			}
			x.response(connection, time.Minute)
			time.Sleep(time.Second) // 150 at a time, not as many as there can be
		})
	})
	x.check()
}

// TestHostileConnections: 3,000 connections that say nothing, half a header, or nothing more.
func TestHostileConnections(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	const wanted = 3000
	var mu sync.Mutex
	var open []net.Conn
	held := 0
	x.measure("3,000 idle connections", func(ctx context.Context) {
		flood(ctx, 30, wanted/30, func(ctx context.Context, worker, _ int) {
			connection, err := x.connect(ctx)
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, connection)
			mu.Unlock()
			switch worker % 3 {
			case 0:
				fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: par", sendPath)
			case 1:
				fmt.Fprintf(connection, "GET /skill HTTP/1.1\r\nHost: parley\r\n\r\n")
				x.response(connection, 5*time.Second)
			}
		})
		time.Sleep(500 * time.Millisecond)
		held = stillOpen(open)
		<-ctx.Done()
	})
	t.Logf("%d of %d connections were held at a time", held, len(open))
	if held > mostConnections {
		t.Errorf("%d idle connections of one address are held, want at most %d", held, mostConnections)
	}
	for _, connection := range open {
		hangUp(connection)
	}
	x.check()
}

// stillOpen counts the connections that the other side has not closed.
func stillOpen(connections []net.Conn) (n int) {
	for _, connection := range connections {
		_ = connection.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := io.Copy(io.Discard, connection); errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// TestHostileSlowBodies: 300 requests whose bodies come a byte a second are given up.
func TestHostileSlowBodies(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	x.measure("300 bodies, a byte a second", func(ctx context.Context) {
		flood(ctx, 300, 100, func(ctx context.Context, _, _ int) {
			connection, err := x.connect(ctx)
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				return
			}
			defer hangUp(connection)
			fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: parley\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n{", sendPath)
			for ctx.Err() == nil {
				if _, err := io.WriteString(connection, " "); err != nil {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			x.response(connection, 100*time.Millisecond)
		})
	})
	x.check()
}

func hangUp(connection net.Conn) { _ = connection.Close() }
