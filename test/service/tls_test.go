package service

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// selfSigned returns a certificate for 127.0.0.1, and a pool with it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "parley.test"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	parsed, err := x509.ParseCertificate(raw)
	testkit.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

// listenTLS serves the world's server with TLS.
func listenTLS(t *testing.T, change func(*server.Config)) (w *world, address string, roots *x509.CertPool) {
	t.Helper()
	certificate, roots := selfSigned(t)
	w = newWorld(t, func(config *server.Config, _ *payment.Chain, _ string) {
		config.TLS = &edge.TLS{
			Config:  &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
			Expires: func() time.Time { return time.Now().Add(time.Hour) },
		}
		change(config)
	})
	return w, w.listen(), roots
}

// client returns a client with HTTP/1.1 or HTTP/2.
func tlsClient(t *testing.T, roots *x509.CertPool, two bool) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: two}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// TestTLS: HTTP/1.1 and HTTP/2 are served, headers are bounded under both, and later requests of a connection count anew.
func TestTLS(t *testing.T) {
	t.Parallel()
	_, address, roots := listenTLS(t, func(*server.Config) {})
	for _, two := range []bool{false, true} {
		caller := tlsClient(t, roots, two)
		for headers, want := range map[int]int{150: http.StatusOK, 250: http.StatusRequestHeaderFieldsTooLarge} {
			for range 2 {
				request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/skill", nil)
				testkit.NoError(t, err)
				for i := range headers {
					request.Header.Set(fmt.Sprintf("X-%d", i), "x")
				}
				response, err := caller.Do(request)
				if err != nil {
					t.Fatalf("HTTP/2 %t, %d headers: %v", two, headers, err)
				}
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != want || (response.ProtoMajor == 2) != two {
					t.Errorf("HTTP/2 %t, %d headers: %s %d %.200s, want %d", two, headers, response.Proto, response.StatusCode, body, want)
				}
			}
		}
	}
}

// TestTLSHeadersAreBounded: the limits of headers hold for what is decrypted, also while they arrive.
func TestTLSHeadersAreBounded(t *testing.T) {
	t.Parallel()
	_, address, roots := listenTLS(t, func(*server.Config) {})
	for name, headers := range map[string]string{
		"a long header": "X-Long: " + strings.Repeat("x", 80<<10) + "\r\n", "many headers": strings.Repeat("a:\r\n", 15_000),
	} {
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
		testkit.NoError(t, err)
		_, _ = io.WriteString(conn, head+headers)
		if status, text := told(conn, patience); status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%s: %d %s, want 431", name, status, text)
		}
		_ = conn.Close()
	}
}

// TestHandshakesAreBounded: who does not finish a handshake keeps nobody out, and is disconnected after five seconds. A connection that
// finds no room is closed.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	w, address, roots := listenTLS(t, func(config *server.Config) { config.Limits.Connections = 8 })
	var silent []net.Conn
	for range 8 {
		silent = append(silent, w.dial(address, "\x16\x03\x01"))
	}
	caller := tlsClient(t, roots, false)
	response, err := caller.Get("https://" + address + "/skill")
	testkit.NoError(t, err)
	_ = response.Body.Close()
	for _, conn := range silent {
		if !closes(conn) {
			t.Error("a connection without a handshake stays open")
		}
	}
	if conn := w.dial(address, head+"\r\n"); !closes(conn) {
		t.Error("a connection without TLS stays open")
	}
}

// TestStreamsPerConnection: a connection has at most 16 requests at a time.
func TestStreamsPerConnection(t *testing.T) {
	t.Parallel()
	w, address, roots := listenTLS(t, func(*server.Config) {})
	w.url, w.http = "https://"+address, tlsClient(t, roots, true)
	w.call(http.MethodGet, "/skill", "").Want(t, "the request that opens the connection", 200)
	var calls sync.WaitGroup
	for range 17 {
		body, writer := io.Pipe()
		defer calls.Wait()
		defer func() { _ = writer.Close() }()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/chat/private/send", body)
		testkit.NoError(t, err)
		request.Header.Set(x402.HeaderPaymentSignature, "x")
		calls.Go(func() { _, _ = w.http.Do(request) }) //nolint:bodyclose // the test ends
		_, _ = io.WriteString(writer, unfinished)      // returns when the client sent the body
	}
	if metrics := w.admin("/metrics"); !strings.Contains(metrics, "parley_connections_open 2\n") {
		t.Error("17 requests do not have two connections")
	}
}
