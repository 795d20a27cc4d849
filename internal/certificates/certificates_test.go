package certificates

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

const domain = "parley.example"

// TestACMEUsesStoredCertificates: a certificate in the folder is served and its end is known. Names of others get no certificate and are
// asked for nowhere. Challenges over HTTP are answered, and other requests passed on.
func TestACMEUsesStoredCertificates(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	a := NewACME([]string{domain}, folder)
	if !a.Expires().IsZero() {
		t.Errorf("without a certificate it expires at %s", a.Expires())
	}
	expires := store(t, folder)
	a.Get(t.Context(), slog.New(slog.DiscardHandler))
	if !a.Expires().Equal(expires) {
		t.Errorf("the certificate expires at %s, want %s", a.Expires(), expires)
	}
	for name, want := range map[string]bool{domain: true, "other.example": false, "": false} {
		client, server := net.Pipe()
		go func() { _ = tls.Server(server, a.Config()).HandshakeContext(t.Context()); _ = server.Close() }()
		config := &tls.Config{ServerName: name, InsecureSkipVerify: true} //nolint:gosec // its name is looked at
		err := tls.Client(client, config).HandshakeContext(t.Context())
		if (err == nil) != want {
			t.Errorf("a handshake for %q: %v", name, err)
		}
		_ = client.Close()
	}
	handler := a.HTTPHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for path, want := range map[string]int{"/skill": http.StatusTeapot, "/.well-known/acme-challenge/unknown": http.StatusNotFound} {
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+domain+path, http.NoBody))
		if response.Code != want {
			t.Errorf("%s returns %d, want %d", path, response.Code, want)
		}
	}
}

// store writes a certificate as autocert stores it, and returns when it expires.
func store(t *testing.T, folder string) time.Time {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(t, err)
	expires := time.Now().Add(80 * 24 * time.Hour).UTC().Truncate(time.Second)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{domain}, NotBefore: time.Now().Add(-time.Hour), NotAfter: expires,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	testkit.NoError(t, err)
	var text bytes.Buffer
	_ = pem.Encode(&text, &pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
	_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: raw})
	testkit.NoError(t, os.WriteFile(filepath.Join(folder, domain), text.Bytes(), 0o600))
	return expires
}
