package operator

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/certificates"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
)

// certificateInterval is how often certificate files are compared with what is in use.
const certificateInterval = 5 * time.Second

// Encryption are the settings for TLS. Without them a proxy encrypts.
type Encryption struct {
	CertificateFile string   `env:"CERTIFICATE_FILE" example:"/etc/parley/fullchain.pem" predictor:"file" placeholder:"FILE"`
	KeyFile         string   `env:"KEY_FILE" example:"/etc/parley/privkey.pem" predictor:"file" placeholder:"FILE"`
	Domain          []string `env:"DOMAIN" example:"[parley.example]" placeholder:"NAME,…"`
	HTTPListen      string   `name:"http-listen" env:"HTTP_LISTEN" example:":80" placeholder:"HOST:PORT"`
}

// enabled reports whether the server encrypts.
func (e Encryption) enabled() bool {
	return e.CertificateFile != "" || e.KeyFile != "" || len(e.Domain) > 0
}

// scheme returns the scheme of the server's URL.
func (e Encryption) scheme() string {
	if e.enabled() {
		return "https://"
	}
	return "http://"
}

var domainForm = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9-]*[a-zA-Z][a-zA-Z0-9-]*$`)

// check returns an error about all wrong settings.
func (e Encryption) check() error {
	var wrong settings.Wrong
	files := e.CertificateFile != "" || e.KeyFile != ""
	if files {
		wrong.Check(len(e.Domain) == 0, "tls-domain", e.Domain, "either it or --tls-certificate-file")
		wrong.Check(e.CertificateFile != "", "tls-certificate-file", "", "the file with the certificate of --tls-key-file")
		wrong.Check(e.KeyFile != "", "tls-key-file", "", "the file with the key of --tls-certificate-file")
	}
	if e.CertificateFile != "" && e.KeyFile != "" {
		if err := (&certificates.Files{Certificate: e.CertificateFile, Key: e.KeyFile}).Load(); err != nil {
			wrong.Check(false, "tls-certificate-file", e.CertificateFile, "a certificate and its key in PEM, not files with: "+err.Error())
		}
	}
	for _, domain := range e.Domain {
		wrong.Check(domainForm.MatchString(domain), "tls-domain", domain, "domains such as parley.example, without scheme, port and *")
	}
	if e.HTTPListen != "" {
		wrong.Check(e.enabled(), "tls-http-listen", e.HTTPListen, "it with --tls-domain or --tls-certificate-file, or not at all")
		wrong.Listen("tls-http-listen", e.HTTPListen)
	}
	return wrong.Err()
}

// Start gets the certificates and returns how the server encrypts: nil if it does not. The server listens already. It keeps the
// certificates up to date until ctx ends. stop ends the redirects.
func (e Encryption) Start(ctx context.Context, config server.Config, log *slog.Logger) (_ *edge.TLS, stop func(), err error) {
	redirect := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, config.BaseURL+r.URL.RequestURI(), http.StatusPermanentRedirect)
	}))
	var encrypted *edge.TLS
	begin := func() {}
	switch {
	case !e.enabled():
		return nil, func() {}, nil
	case len(e.Domain) > 0:
		acme := certificates.NewACME(e.Domain, filepath.Join(cmp.Or(os.Getenv("STATE_DIRECTORY"), "/var/lib/parley"), "certificates"))
		encrypted = &edge.TLS{Config: acme.Config(), Expires: acme.Expires}
		if e.HTTPListen != "" {
			redirect = acme.HTTPHandler(redirect)
		}
		begin = func() { go acme.Get(ctx, log) }
	default:
		files := &certificates.Files{Certificate: e.CertificateFile, Key: e.KeyFile}
		if err := files.Load(); err != nil {
			return nil, nil, err
		}
		encrypted = &edge.TLS{Config: files.Config(), Expires: files.Expires}
		go files.Watch(ctx, certificateInterval, log)
	}
	stop = func() {}
	if e.HTTPListen != "" {
		redirects, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.HTTPListen)
		if err != nil {
			return nil, nil, err
		}
		limited, redirector := edge.NewRedirector(redirects, redirect, config.Limits.TrustedProxies, server.Refusal, log)
		stop = serveBy(ctx, limited, redirector)
	}
	begin()
	return encrypted, stop, nil
}
