package edge

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestEncryptedHeadersAreCounted: what a connection sends of an unfinished request counts against the sum of all connections, also
// when it is encrypted, and no longer when the request is complete or the connection ends.
func TestEncryptedHeadersAreCounted(t *testing.T) {
	t.Parallel()
	certified := httptest.NewUnstartedServer(nil) // lends its certificate
	certified.StartTLS()
	defer certified.Close()
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.NoError(t, err)
	all := newLimited(DefaultLimits())
	l := newSecureListener(listener{raw, all}, &tls.Config{Certificates: certified.TLS.Certificates, NextProtos: []string{"http/1.1"},
		MinVersion: tls.VersionTLS12})
	defer func() { _ = l.Close() }()
	held := func() int {
		all.mu.Lock()
		defer all.mu.Unlock()
		return all.memory.size
	}
	wants := func(what string, holds func(n int) bool) {
		t.Helper()
		for began := time.Now(); !holds(held()); time.Sleep(time.Millisecond) {
			if time.Since(began) > 10*time.Second {
				t.Fatalf("%s: %d bytes are counted", what, held())
			}
		}
	}
	unfinished := dial(t, raw.Addr())
	_, _ = io.WriteString(unfinished, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc"+strings.Repeat("x", 10<<10)) // a part of a handshake
	wants("an unfinished handshake", func(n int) bool { return n > 5<<10 })
	_ = unfinished.Close()
	wants("after its end", func(n int) bool { return n == 0 })

	caller := tls.Client(dial(t, raw.Addr()), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the test's own server
	go func() { _, _ = io.WriteString(caller, "GET / HTTP/1.1\r\nX-Long: "+strings.Repeat("x", 50<<10)) }()
	conn, err := l.Accept()
	testkit.NoError(t, err)
	go func() { _, _ = http.ReadRequest(bufio.NewReader(conn)) }() //nolint:bodyclose // it never ends
	wants("unfinished headers", func(n int) bool { return n > 40<<10 })
	all.observe(conn, http.StateActive)
	wants("a complete request", func(n int) bool { return n == 0 })
	_ = caller.Close()
	_ = conn.Close()
	if all.open.Shares != 0 {
		t.Errorf("%d connections are open at the end", all.open.Shares)
	}
}

func dial(t *testing.T, address net.Addr) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address.String())
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
