//go:build attack

package attack

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// secure restarts the server with TLS and a new certificate.
func (s *server) secure(folder string, valid time.Duration) {
	s.w.T.Helper()
	s.w.certificate(folder, valid)
	s.url = "https://" + s.listen
	s.flags = append(s.flags, "--base-url", s.url,
		"--tls-certificate-file", filepath.Join(folder, "certificate.pem"), "--tls-key-file", filepath.Join(folder, "key.pem"))
	s.restart("")
}

// anyCertificate lets clients of the tests connect to their own servers.
var anyCertificate = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above

// certificate writes a new certificate and its key.
func (w *world) certificate(folder string, valid time.Duration) {
	w.T.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.NoError(w.T, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(valid), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testkit.NoError(w.T, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	testkit.NoError(w.T, err)
	for name, block := range map[string]*pem.Block{
		"certificate.pem": {Type: "CERTIFICATE", Bytes: certificate}, "key.pem": {Type: "PRIVATE KEY", Bytes: private},
	} {
		testkit.NoError(w.T, os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600))
	}
}
