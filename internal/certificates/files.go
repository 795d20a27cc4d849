// Package certificates provides the TLS certificates of a server: from files, which are read again when they change, or from an ACME
// server such as Let's Encrypt.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Files are a certificate and its key in two PEM files. The certificate file has the intermediate certificates after its own.
type Files struct {
	Certificate, Key string

	current atomic.Pointer[pair]
}

// pair is the content of the files, and what it means.
type pair struct {
	certificate, key []byte
	parsed           tls.Certificate
}

// Load reads the files for the first time. The error names the file, without its path, and never shows its content.
func (f *Files) Load() error {
	loaded, err := f.read()
	if err != nil {
		return err
	}
	f.current.Store(loaded)
	return nil
}

func (f *Files) read() (*pair, error) {
	certificate, err := os.ReadFile(f.Certificate)
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", errors.Unwrap(err))
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", errors.Unwrap(err))
	}
	parsed, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	return &pair{certificate, key, parsed}, nil
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
			if old := f.current.Load(); bytes.Equal(old.certificate, loaded.certificate) && bytes.Equal(old.key, loaded.key) {
				continue
			}
			f.current.Store(loaded)
			log.InfoContext(ctx, "the TLS certificate was replaced", "expires", f.Expires())
		}
	}
}

// Config returns the configuration of a server that uses the files. Load must have succeeded.
func (f *Files) Config() *tls.Config {
	return secure(&tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &f.current.Load().parsed, nil }})
}

// Expires returns when the certificate in use expires.
func (f *Files) Expires() time.Time { return f.current.Load().parsed.Leaf.NotAfter }

// secure adds what all configurations have: Go's cipher suites for TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
func secure(config *tls.Config) *tls.Config {
	config.MinVersion = tls.VersionTLS12
	config.NextProtos = append([]string{"h2", "http/1.1"}, config.NextProtos...)
	return config
}
