package certificates

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
)

// ACME gets certificates from an ACME server and renews them. Servers that share the folder share the certificates.
type ACME struct {
	Domains []string
	Folder  string // for certificates, keys and the account
	URL     string // of the ACME server; Let's Encrypt if it is empty

	cache  *certmagic.Cache
	magic  *certmagic.Config
	issuer *certmagic.ACMEIssuer
}

// Open prepares for a server that listens at an address. httpListen is where it answers challenges over HTTP; it may be empty.
func (a *ACME) Open(listen, httpListen string, log *slog.Logger) error {
	template := certmagic.ACMEIssuer{CA: a.URL, Agreed: true, Logger: zap.NewNop(), DisableHTTPChallenge: httpListen == ""}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	template.ListenHost = host
	if template.AltTLSALPNPort, err = strconv.Atoi(port); err != nil {
		return err
	}
	if httpListen != "" {
		_, port, err := net.SplitHostPort(httpListen)
		if err != nil {
			return err
		}
		if template.AltHTTPPort, err = strconv.Atoi(port); err != nil {
			return err
		}
	}
	if a.URL == "" {
		template.CA = certmagic.LetsEncryptProductionCA
	}
	if err := os.MkdirAll(a.Folder, 0o700); err != nil {
		return err
	}
	a.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) { return a.magic, nil },
		Logger:           zap.NewNop(), // its events are logged
	})
	a.magic = certmagic.New(a.cache, certmagic.Config{
		Storage: &certmagic.FileStorage{Path: a.Folder}, Logger: zap.NewNop(), OnEvent: events{log}.log,
	})
	a.issuer = certmagic.NewACMEIssuer(a.magic, template)
	a.magic.Issuers = []certmagic.Issuer{a.issuer}
	return nil
}

// Start gets missing certificates in the background and renews them until ctx ends. The server must listen, because the ACME server
// connects to it.
func (a *ACME) Start(ctx context.Context) error {
	context.AfterFunc(ctx, a.cache.Stop)
	return a.magic.ManageAsync(ctx, a.Domains)
}

// Config returns the configuration of the server. It also answers the challenges of the ACME server (TLS-ALPN-01).
func (a *ACME) Config() *tls.Config { return secure(a.magic.TLSConfig()) }

// Challenges answers challenges over HTTP (HTTP-01) and passes on other requests.
func (a *ACME) Challenges(next http.Handler) http.Handler { return a.issuer.HTTPChallengeHandler(next) }

// Expires returns when the first certificate expires, or the zero time if a domain has none.
func (a *ACME) Expires() (first time.Time) {
	for _, domain := range a.Domains {
		var latest time.Time
		for _, certificate := range a.cache.AllMatchingCertificates(domain) {
			if latest.Before(certificate.Leaf.NotAfter) {
				latest = certificate.Leaf.NotAfter
			}
		}
		if latest.IsZero() {
			return latest
		}
		if first.IsZero() || latest.Before(first) {
			first = latest
		}
	}
	return first
}

type events struct{ to *slog.Logger }

func (e events) log(ctx context.Context, event string, data map[string]any) error {
	switch event {
	case "cert_obtained":
		e.to.InfoContext(ctx, "a TLS certificate was obtained", "domain", data["identifier"], "renewal", data["renewal"])
	case "cert_failed":
		e.to.ErrorContext(ctx, "no TLS certificate was obtained; it is tried again", "domain", data["identifier"], "error",
			fmt.Sprint(data["error"]))
	}
	return nil
}
