//go:build !noserver

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/cdp"
	"github.com/parley-chat/parley/x402"
)

// facilitator are the settings for the x402 facilitator, and how the server authenticates to it: not at all, with a token that does
// not change, or with an API key of the Coinbase Developer Platform.
type facilitator struct {
	URL       string `name:"url" env:"URL" placeholder:"URL" help:"The x402 facilitator that verifies and settles payments."`
	Token     string `env:"TOKEN" secret:"" placeholder:"TOKEN" help:"Bearer token for a facilitator that asks for one."`
	KeyID     string `name:"key-id" env:"KEY_ID" placeholder:"ID" help:"ID of a secret API key of the Coinbase Developer Platform, for its facilitator."`
	KeySecret string `env:"KEY_SECRET" secret:"" placeholder:"SECRET" help:"The secret of that API key, as the platform shows it: base64 or PEM."`
}

// config returns a client that logs to log. The error lists all invalid settings.
func (f facilitator) config(log *slog.Logger) (*x402.Facilitator, error) {
	var wrong wrongSettings
	wrong.http("facilitator-url", f.URL, "the URL of the x402 facilitator")
	client := &x402.Facilitator{BaseURL: strings.TrimSuffix(f.URL, "/"), HTTPClient: &http.Client{Transport: facilitatorTransport()}, Logger: log}
	if f.Token != "" || f.KeyID != "" || f.KeySecret != "" {
		wrong.check(!isHTTP(f.URL) || hasUser(f.URL) || confidential(f.URL), "facilitator-url", f.URL, "https, because the server authenticates to the facilitator")
		var err error
		client.AuthHeaders, err = f.headers(client.BaseURL)
		wrong.add(err)
	}
	return client, wrong.err()
}

// headers returns the function that authenticates each request to the facilitator.
func (f facilitator) headers(baseURL string) (func(context.Context, string) (http.Header, error), error) {
	var wrong wrongSettings
	switch {
	case f.Token != "" && (f.KeyID != "" || f.KeySecret != ""):
		wrong.check(false, "facilitator-token", hidden(f.Token), "either a token or an API key (--facilitator-key-id)")
	case f.Token != "":
		wrong.check(!strings.ContainsFunc(f.Token, func(r rune) bool { return r <= ' ' || r > '~' }), "facilitator-token", hidden(f.Token),
			"a token without spaces and control characters")
		header := http.Header{"Authorization": {"Bearer " + f.Token}}
		return func(context.Context, string) (http.Header, error) { return header, nil }, wrong.err()
	case f.KeyID == "":
		wrong.check(false, "facilitator-key-id", "", "the ID that belongs to the secret of the API key")
	case f.KeySecret == "":
		wrong.check(false, "facilitator-key-secret", "", "the secret of the API key "+f.KeyID)
	default:
		key, err := cdp.ParseKey(f.KeyID, f.KeySecret)
		if err == nil {
			return key.FacilitatorHeaders(baseURL), nil
		}
		wrong.check(false, "facilitator-key-secret", hidden(f.KeySecret), "base64 of 64 bytes (Ed25519), or an EC private key for P-256 in PEM")
	}
	return nil, wrong.err()
}

// confidential reports whether nobody else can read requests to the URL.
func confidential(text string) bool {
	parsed, err := url.Parse(text)
	return err == nil && (parsed.Scheme == "https" || isLoopback(parsed.Hostname()))
}

// facilitatorTransport returns a transport that keeps enough idle connections for many concurrent settlements. Its dial
// timeout is short, so that callers get a response within two seconds if the host is unreachable.
func facilitatorTransport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 64
	transport.DialContext = (&net.Dialer{Timeout: 700 * time.Millisecond, KeepAlive: 30 * time.Second}).DialContext
	return transport
}
