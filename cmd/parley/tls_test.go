//go:build !noserver

package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402/evm"
)

// authority is a certificate authority of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	roots       *x509.CertPool
	serial      int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{roots: x509.NewCertPool()}
	a.key, a.certificate = a.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.roots.AddCert(a.certificate)
	return a
}

// sign signs a certificate, or the authority's own.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	a.serial++
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(a.serial), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	testkit.NoError(t, err)
	certificate, err := x509.ParseCertificate(raw)
	testkit.NoError(t, err)
	return key, certificate
}

// write writes a new certificate for 127.0.0.1 and its key into a folder, and returns the serial number.
func (a *authority) write(t *testing.T, folder string) int64 {
	t.Helper()
	key, certificate := a.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	encoded, err := x509.MarshalECPrivateKey(key)
	testkit.NoError(t, err)
	writePEM(t, filepath.Join(folder, "cert.pem"), "CERTIFICATE", certificate.Raw)
	writePEM(t, filepath.Join(folder, "key.pem"), "EC PRIVATE KEY", encoded)
	return a.serial
}

func writePEM(t *testing.T, file, kind string, content []byte) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
}

// publish writes a new certificate into a folder of its own and turns a symbolic link to it, as Kubernetes does.
func (a *authority) publish(t *testing.T, base, version string) (serial int64) {
	t.Helper()
	folder := filepath.Join(base, version)
	testkit.NoError(t, os.Mkdir(folder, 0o700))
	serial = a.write(t, folder)
	testkit.NoError(t, os.Symlink(version, filepath.Join(base, "new")))
	testkit.NoError(t, os.Rename(filepath.Join(base, "new"), filepath.Join(base, "current")))
	return serial
}

// serialOf returns the serial number of the certificate of a server.
func (a *authority) serialOf(t *testing.T, address string) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12})
	testkit.NoError(t, err)
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// client returns an HTTP client that trusts the authority.
func (a *authority) client(t *testing.T) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// pays makes an account by paid calls through TLS.
func pays(t *testing.T, address string, through http.RoundTripper) {
	t.Helper()
	wallet, err := evm.HexToECDSA(strings.TrimPrefix(devnet.Accounts()[6].PrivateKey, "0x"))
	testkit.NoError(t, err)
	testkit.NewAgent(t, "https://"+address, wallet, testkit.Sparing, through, nil).Register(t, "secure")
}

// TestCertificateFiles: the server encrypts with certificate files, notices new ones behind a symbolic link under load without a failed
// call, and goes on with the old ones while the new ones are broken.
func TestCertificateFiles(t *testing.T) {
	t.Parallel()
	ca, base := newAuthority(t), t.TempDir()
	first := ca.publish(t, base, "1")
	address, redirects := testkit.FreeAddress(t), testkit.FreeAddress(t)
	certificate := filepath.Join(base, "current", "cert.pem")
	server, admin := serveWith(t, storetest.URL(t), "--listen", address, "--base-url", "https://"+address, "--tls-http-listen", redirects,
		"--limit-address-rate", "1000000", "--tls-certificate-file", certificate, "--tls-key-file", filepath.Join(base, "current", "key.pem"))
	if got := ca.serialOf(t, address); got != first {
		t.Errorf("the certificate has the number %d, want %d", got, first)
	}
	pays(t, address, ca.client(t).Transport)
	response, err := ca.client(t).Get("http://" + redirects + "/skill")
	testkit.NoError(t, err)
	if err := response.Body.Close(); err != nil || response.Request.URL.String() != "https://"+address+"/skill" {
		t.Errorf("http:// leads to %s, %v", response.Request.URL, err)
	}

	ctx, stop := context.WithCancel(t.Context())
	var calls, failures atomic.Int64
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			caller := ca.client(t)
			caller.Transport.(*http.Transport).DisableKeepAlives = true // so that each call makes a handshake
			for pace := time.Tick(50 * time.Millisecond); ctx.Err() == nil; <-pace {
				response, err := caller.Get("https://" + address + "/skill")
				if calls.Add(1); err != nil || response.StatusCode != http.StatusOK {
					failures.Add(1)
					continue
				}
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		})
	}
	second := ca.publish(t, base, "2")
	eventually(t, "the new certificate is used", func() bool { return ca.serialOf(t, address) == second })
	testkit.NoError(t, os.WriteFile(filepath.Join(base, "current", "key.pem"), []byte("hunter2"), 0o600))
	eventually(t, "the broken key is logged", func() bool { return strings.Contains(server.logs.String(), "the old one stays in use") })
	if got := ca.serialOf(t, address); got != second || strings.Contains(server.logs.String(), "hunter2") {
		t.Errorf("with a broken key the certificate is %d, want %d\n%s", got, second, server.logs)
	}
	third := ca.publish(t, base, "3")
	eventually(t, "the next certificate is used", func() bool { return ca.serialOf(t, address) == third })
	stop()
	load.Wait()
	if failures.Load() > 0 || calls.Load() < 20 {
		t.Errorf("%d of %d calls failed while the certificate changed", failures.Load(), calls.Load())
	}
	reply, err := testkit.Request(t.Context(), http.DefaultClient, http.MethodGet, admin+"/metrics", "")
	if err != nil || !strings.Contains(string(reply.Body), "\nparley_tls_certificate_expires_seconds 3") {
		t.Errorf("the metric of the certificate is missing or not within the hour: %v", err)
	}
}

// TestRedirectsAreBounded: who holds connections to --tls-http-listen open keeps nobody out, and holds no more than it may.
func TestRedirectsAreBounded(t *testing.T) {
	t.Parallel()
	folder, address := t.TempDir(), testkit.FreeAddress(t)
	newAuthority(t).write(t, folder)
	settings := operator.Encryption{CertificateFile: filepath.Join(folder, "cert.pem"), KeyFile: filepath.Join(folder, "key.pem"),
		HTTPListen: address}
	_, stop, err := settings.Start(t.Context(), server.Config{BaseURL: "https://parley.example"}, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	t.Cleanup(stop)
	var silent []net.Conn
	for range 100 { // each gets its response, or another one after it ends the connection
		conn, err := net.Dial("tcp", address)
		testkit.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET /skill HTTP/1.1\r\nHost: parley.example\r\n\r\n")
		silent = append(silent, conn)
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		testkit.NoError(t, err)
		if _ = response.Body.Close(); response.StatusCode != http.StatusPermanentRedirect ||
			response.Header.Get("Location") != "https://parley.example/skill" {
			t.Fatalf("a newcomer gets %s %s, want a redirect", response.Status, response.Header)
		}
	}
	for i, conn := range silent { // the first ones made room for others, and silence ends all
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection %d stays open", i)
		}
	}
}
