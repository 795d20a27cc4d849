// Package certificates provides the TLS certificates of a server: from files, which are read again when they change, or from Let's Encrypt.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// Files are a certificate and its key in two PEM files. The certificate file has the intermediate certificates after its own.
type Files struct {
	Certificate, Key string

	current atomic.Pointer[tls.Certificate]
}

// Load reads the files for the first time. The error names the file, without its path, and never shows its content.
func (f *Files) Load() error {
	loaded, err := f.read()
	if err == nil {
		f.current.Store(loaded)
	}
	return err
}

func (f *Files) read() (*tls.Certificate, error) {
	certificate, err := os.ReadFile(f.Certificate)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", errors.Unwrap(err))
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", errors.Unwrap(err))
	}
	parsed, err := tls.X509KeyPair(certificate, key)
	return &parsed, err
}

// Watch reads the files again every so often until ctx ends. It compares their content, so it notices changed files, renamed ones and
// symbolic links, as certbot and Kubernetes make them. While the new files are broken or do not belong together the old certificate
// stays in use, and each state of broken files is logged once.
func (f *Files) Watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		loaded, err := f.read()
		switch {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.ErrorContext(ctx, "the TLS certificate cannot be replaced; the old one stays in use", "error", err, "expires", f.Expires())
		case err == nil:
			said = ""
			if !slices.EqualFunc(f.current.Load().Certificate, loaded.Certificate, bytes.Equal) {
				f.current.Store(loaded)
				log.InfoContext(ctx, "the TLS certificate was replaced", "expires", f.Expires())
			}
		}
	}
}

// Config returns the configuration of a server that uses the files. Load must have succeeded.
func (f *Files) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil }}
}

// Expires returns when the certificate in use expires.
func (f *Files) Expires() time.Time { return f.current.Load().Leaf.NotAfter }

// ACME gets certificates from Let's Encrypt and renews them. Its servers cannot share a domain.
type ACME struct {
	autocert.Manager

	domains []string
	expires sync.Map // of domain to time.Time
}

// NewACME keeps certificates and their keys in a folder.
func NewACME(domains []string, folder string) *ACME {
	return &ACME{domains: domains, Manager: autocert.Manager{
		Prompt: autocert.AcceptTOS, Cache: autocert.DirCache(folder), HostPolicy: autocert.HostWhitelist(domains...)}}
}

// Get gets missing certificates. The server must listen, because Let's Encrypt connects to it.
func (a *ACME) Get(ctx context.Context, log *slog.Logger) {
	for _, domain := range a.domains {
		hello := &tls.ClientHelloInfo{ServerName: domain, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
		if _, err := a.get(hello); err != nil {
			log.ErrorContext(ctx, "no TLS certificate was obtained; the next caller tries again", "domain", domain, "error", err)
		}
	}
}

func (a *ACME) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	found, err := a.GetCertificate(hello)
	if err == nil && slices.Contains(a.domains, hello.ServerName) && !slices.Contains(hello.SupportedProtos, acme.ALPNProto) {
		a.expires.Store(hello.ServerName, found.Leaf.NotAfter)
	}
	return found, err
}

// Config returns the configuration of the server. It also answers challenges (TLS-ALPN-01).
func (a *ACME) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1", acme.ALPNProto}, GetCertificate: a.get}
}

// Expires returns when the first certificate expires, or the zero time if a domain has none.
func (a *ACME) Expires() (first time.Time) {
	for i, domain := range a.domains {
		at, _ := a.expires.Load(domain)
		if expires, _ := at.(time.Time); i == 0 || expires.Before(first) {
			first = expires
		}
	}
	return first
}
