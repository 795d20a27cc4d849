package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestHeadersOfEveryResponse: no reply is taken for something else, none but the published documents is kept by anybody,
// and none says what it was made with.
func TestHeadersOfEveryResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	const profile, body = "/agent/profile", `{"username":"alice"}`
	payment := w.sign(alice.Wallet, profile)
	paid := func() testkit.Reply {
		return w.call(http.MethodPost, profile, body, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
	}
	contract := w.call(http.MethodGet, "/openapi.yaml", "")
	for name, test := range map[string]struct {
		a     testkit.Reply
		cache string
	}{
		"a paid reply":   {paid(), "private, no-store"},
		"its repetition": {paid(), "private, no-store"},
		"a price":        {w.call(http.MethodPost, profile, ""), "no-store"},
		"a mistake":      {w.call(http.MethodPost, profile, "{}"), "no-store"},
		"a refusal":      {alice.ask("/chat/private/info", fields{"chat_id": noChat}), "no-store"},
		"a wrong key":    {w.pay(alice.Wallet, profile, body), "no-store"},
		"a wrong method": {w.call(http.MethodGet, profile, ""), "no-store"},
		"HEAD":           {w.call(http.MethodHead, profile, ""), "no-store"},
		"no path":        {w.call(http.MethodGet, "/nothing", ""), "no-store"},
		"health":         {w.call(http.MethodGet, "/health", ""), "no-store"},
		"the skill":      {w.call(http.MethodGet, "/skill", ""), "no-store"},
		"the contract":   {contract, "public, max-age=300"},
		"the contract, cached": {w.call(http.MethodGet, "/openapi.yaml", "", "If-None-Match", contract.Header.Get("ETag")),
			"public, max-age=300"},
		"the front page": {w.call(http.MethodGet, "/", ""), "public, max-age=300"},
		"llms.txt":       {w.call(http.MethodGet, "/llms.txt", ""), "public, max-age=300"},
		"a preflight": {w.call(http.MethodOptions, profile, "", "Origin", "https://agent.example", "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "payment-signature"), "no-store"},
		"a request from a browser": {w.call(http.MethodPost, profile, "", "Origin", "https://agent.example"), "no-store"},
	} {
		header := test.a.Header
		if got := header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options is %q, want nosniff", name, got)
		}
		if got := header.Get("Cache-Control"); got != test.cache {
			t.Errorf("%s: Cache-Control is %q, want %q", name, got, test.cache)
		}
		if got := header.Get("X-Request-Id"); got == "" {
			t.Errorf("%s has no X-Request-Id", name)
		}
		for key := range header {
			switch known := strings.ToLower(key); known {
			case "content-type", "content-length", "date", "vary", "etag", "allow", "x-request-id", "x-content-type-options", "cache-control",
				"payment-required", "payment-response", "idempotent-replayed", "retry-after", "www-authenticate":
			default:
				if !strings.HasPrefix(known, "access-control-") {
					t.Errorf("%s tells more than it must: %s", name, fmt.Sprint(key, header[key]))
				}
			}
		}
	}
	exposed := w.call(http.MethodPost, profile, "", "Origin", "https://agent.example").Header.Get("Access-Control-Expose-Headers")
	for _, header := range []string{"RateLimit-Policy", "Idempotent-Replayed"} {
		if !strings.Contains(exposed, header) {
			t.Errorf("a browser may not read %s: %q", header, exposed)
		}
	}
}
