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
	URL       string `name:"url" env:"URL" placeholder:"URL" help:"The x402 facilitator that verifies and settles payments."`
	Token     string `env:"TOKEN" secret:"" placeholder:"TOKEN" help:"Bearer token for a facilitator that asks for one."`
	KeyID     string `name:"key-id" env:"KEY_ID" placeholder:"ID" help:"ID of a secret API key of the Coinbase Developer Platform, for its facilitator."`
	KeySecret string `env:"KEY_SECRET" secret:"" placeholder:"SECRET" help:"The secret of that API key, as the platform shows it: base64 or PEM."`
}

// Config returns a client that logs to log. The error lists all invalid settings.
func (f Facilitator) Config(log *slog.Logger) (*x402.Facilitator, error) {
	var wrong settings.Wrong
	wrong.HTTP("facilitator-url", f.URL, "the URL of the x402 facilitator")
	client := &x402.Facilitator{BaseURL: strings.TrimSuffix(f.URL, "/"), HTTPClient: &http.Client{Transport: facilitatorTransport()}, Logger: log}
	if f.Token != "" || f.KeyID != "" || f.KeySecret != "" {
		wrong.Check(!settings.IsHTTP(f.URL) || settings.HasUser(f.URL) || confidential(f.URL), "facilitator-url", f.URL, "https, because the server authenticates to the facilitator")
		var err error
		client.AuthHeaders, err = f.headers(client.BaseURL)
		wrong.Add(err)
	}
	return client, wrong.Err()
}

// headers returns the function that authenticates each request to the facilitator.
func (f Facilitator) headers(baseURL string) (func(context.Context, string) (http.Header, error), error) {
	var wrong settings.Wrong
	switch {
	case f.Token != "" && (f.KeyID != "" || f.KeySecret != ""):
		wrong.Check(false, "facilitator-token", settings.Hidden(f.Token), "either a token or an API key (--facilitator-key-id)")
	case f.Token != "":
		wrong.Check(!strings.ContainsFunc(f.Token, func(r rune) bool { return r <= ' ' || r > '~' }), "facilitator-token", settings.Hidden(f.Token),
			"a token without spaces and control characters")
		header := http.Header{"Authorization": {"Bearer " + f.Token}}
		return func(context.Context, string) (http.Header, error) { return header, nil }, wrong.Err()
	case f.KeyID == "":
		wrong.Check(false, "facilitator-key-id", "", "the ID that belongs to the secret of the API key")
	case f.KeySecret == "":
		wrong.Check(false, "facilitator-key-secret", "", "the secret of the API key "+f.KeyID)
	default:
		key, err := cdp.ParseKey(f.KeyID, f.KeySecret)
		if err == nil {
			return key.FacilitatorHeaders(baseURL), nil
		}
		wrong.Check(false, "facilitator-key-secret", settings.Hidden(f.KeySecret), "base64 of 64 bytes (Ed25519), or an EC private key for P-256 in PEM")
	}
	return nil, wrong.Err()
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
