package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// listen serves the world's server on a port, with the limits of connections that Serve sets, and returns the port's
// address.
func (w *world) listen() string {
	w.T.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(w.T, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.server.Serve(ctx, listener) }()
	w.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.T.Error(err)
		}
	})
	w.url = "http://" + listener.Addr().String()
	return listener.Addr().String()
}

// dial opens a connection and sends a text.
func (w *world) dial(address, text string) net.Conn {
	w.T.Helper()
	conn, err := net.Dial("tcp", address)
	testkit.NoError(w.T, err)
	w.T.Cleanup(func() { _ = conn.Close() })
	_, _ = io.WriteString(conn, text) // the server may refuse it before the end
	return conn
}

// told reads the reply of a connection, or says how it ended.
func told(conn net.Conn, patience time.Duration) (status int, text string) {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	raw, _ := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(response.Header, string(raw))
}

// closes reports whether the server ends the connection.
func closes(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	_, err := io.Copy(io.Discard, conn)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// patience is for what happens within five seconds on a machine that is not busy.
const patience = 25 * time.Second

const head = "GET /skill HTTP/1.1\r\nHost: parley.test\r\n"

// TestHeadersAreBounded: more than 32 KiB or 200 lines of headers are refused at once.
func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.listen()
	for name, headers := range map[string]string{
		"a long header": "X-Long: " + strings.Repeat("x", 80<<10) + "\r\n",
		"many headers":  strings.Repeat("a:\r\n", 15_000),
		"many names": func() (all string) {
			for i := range 1000 {
				all += fmt.Sprintf("a%d:\r\n", i)
			}
			return all
		}(),
	} {
		if status, text := told(w.dial(address, head+headers), patience); status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d %s, want 431", name, status, text)
		}
	}
	for name, headers := range map[string]string{
		"30 KiB": "X-Long: " + strings.Repeat("x", 30<<10) + "\r\n",
		"150":    strings.Repeat("X-Short: x\r\n", 150),
	} {
		conn := w.dial(address, strings.Repeat(head+headers+"\r\n", 2)) // twice: the count begins anew
		if status, text := told(conn, patience); status != http.StatusOK {
			t.Errorf("%s of headers: %d %s, want 200", name, status, text)
		}
	}
	body := "{" + strings.Repeat("\n", 500) + `"username":"alice"}` // lines that are no headers
	w.call(http.MethodPost, "/agent/profile", body).Want(t, "a body of 500 lines", 402)
}

// TestUnfinishedHeadersEnd: a connection whose headers do not end is closed after five seconds.
func TestUnfinishedHeadersEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if !closes(w.dial(w.listen(), head+"X-Long: ")) {
		t.Error("a connection with unfinished headers stays open")
	}
}

// TestNewcomersFindRoom: who holds connections open without asking anything keeps nobody out, at its own address or at
// others, and holds no more than it may.
func TestNewcomersFindRoom(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]edge.Limits{
		"an address": {ConnectionsPerAddress: 8},
		"all":        {Connections: 8, ConnectionsPerAddress: 1000},
	} {
		w := newWorld(t, withLimits(limits))
		address := w.listen()
		for range 50 {
			w.dial(address, "") // silent
			w.dial(address, head)
		}
		w.call(http.MethodGet, "/skill", "").Want(t, name+": a newcomer", 200)
		w.http.CloseIdleConnections()
		var open, displaced int
		for line := range strings.Lines(w.admin("/metrics")) {
			_, _ = fmt.Sscanf(line, "parley_connections_open %d", &open)
			_, _ = fmt.Sscanf(line, "parley_connections_displaced_total %d", &displaced)
		}
		if open > 8 || displaced < 90 {
			t.Errorf("%s: %d connections are open and %d were displaced, want at most 8 open", name, open, displaced)
		}
	}
}

// TestNoRoomIsToldCheaply: where every connection has a request, a further one is refused with 503 at once; a trusted
// proxy is not held to the limit of an address.
func TestNoRoomIsToldCheaply(t *testing.T) {
	t.Parallel()
	for _, trusted := range []bool{false, true} {
		limits := edge.Limits{ConnectionsPerAddress: 2}
		if trusted {
			limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		}
		w := newWorld(t, withLimits(limits))
		alice := w.agent("alice")
		const profile, body = "/agent/profile", `{"username":"alice"}`
		var payments []string
		for range 2 {
			payments = append(payments, w.sign(alice.Wallet, profile))
		}
		release, settling := make(chan struct{}), make(chan struct{}, 2)
		mend := w.atSettlement(func() {
			settling <- struct{}{}
			<-release
		})
		address := w.listen()
		var busy []net.Conn
		for _, payment := range payments {
			busy = append(busy, w.dial(address,
				fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-API-KEY: %s\r\n%s: %s\r\nContent-Length: %d\r\n\r\n%s",
					profile, alice.Key, x402.HeaderPaymentSignature, payment, len(body), body)))
			<-settling
		}
		status, text := told(w.dial(address, head+"\r\n"), patience)
		if trusted && status != http.StatusOK {
			t.Errorf("a third connection of a trusted proxy: %d %s, want 200", status, text)
		} else if !trusted && (status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"unavailable"`) ||
			!strings.Contains(text, "Retry-After:[1]")) {
			t.Errorf("a third connection beside two at work: %d %s, want 503 with Retry-After", status, text)
		}
		close(release)
		for _, conn := range busy {
			if status, text := told(conn, patience); status != http.StatusOK {
				t.Errorf("a call that was at work: %d %s, want 200", status, text)
			}
		}
		mend()
		if metrics := w.admin("/metrics"); !trusted && !strings.Contains(metrics, "parley_connections_refused_total 1\n") {
			t.Error("the metrics do not count the refusal")
		}
	}
}
