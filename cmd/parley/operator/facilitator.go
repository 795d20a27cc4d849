package operator

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/cdp"
	"github.com/parley-chat/parley/x402"
)

// Facilitator are the settings for the x402 facilitator, and how the server authenticates to it: not at all, with a token that does
// not change, or with an API key of the Coinbase Developer Platform.
type Facilitator struct {
	URL string          `name:"url" env:"URL" example:"https://facilitator.example" placeholder:"URL"`
	Key settings.Secret `env:"KEY" placeholder:"KEY"`
}

// Config returns a client that logs to log. The error lists all invalid settings.
func (f Facilitator) Config(log *slog.Logger) (*x402.Facilitator, error) {
	var wrong settings.Wrong
	wrong.HTTP("facilitator-url", f.URL, "the URL of the x402 facilitator")
	client := &x402.Facilitator{BaseURL: strings.TrimSuffix(f.URL, "/"), HTTPClient: &http.Client{Transport: facilitatorTransport()},
		Logger: log}
	if f.Key.Value != "" {
		wrong.Check(!settings.IsHTTP(f.URL) || settings.HasUser(f.URL) || confidential(f.URL), "facilitator-url", f.URL,
			"https, because the server authenticates to the facilitator")
		var err error
		client.AuthHeaders, err = f.headers(client.BaseURL)
		wrong.Add(err)
	}
	return client, wrong.Err()
}

// headers returns the function that authenticates each request to the facilitator. A bearer token has no colon (RFC 6750).
func (f Facilitator) headers(baseURL string) (func(context.Context, string) (http.Header, error), error) {
	var wrong settings.Wrong
	id, secret, isKey := strings.Cut(f.Key.Value, ":")
	if !isKey {
		wrong.Check(!strings.ContainsFunc(f.Key.Value, func(r rune) bool { return r <= ' ' || r > '~' }), "facilitator-key", f.Key,
			"a token without spaces and control characters, or ID:SECRET")
		header := http.Header{"Authorization": {"Bearer " + f.Key.Value}}
		return func(context.Context, string) (http.Header, error) { return header, nil }, wrong.Err()
	}
	key, err := cdp.ParseKey(id, strings.TrimSpace(secret))
	if err != nil {
		return nil, settings.Invalid("facilitator-key", f.Key,
			"ID:SECRET, the secret as base64 of 64 bytes (Ed25519), or as an EC private key for P-256 in PEM")
	}
	return key.FacilitatorHeaders(baseURL), nil
}

// confidential reports whether nobody else can read requests to the URL.
func confidential(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "https" || settings.IsLoopback(parsed.Hostname()))
}

// facilitatorTransport returns a transport that keeps enough idle connections for many concurrent settlements. Its dial
// timeout is short, so that callers get a response within two seconds if the host is unreachable.
func facilitatorTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	transport.DialContext = (&net.Dialer{Timeout: 700 * time.Millisecond, KeepAlive: 30 * time.Second}).DialContext
	return transport
}
