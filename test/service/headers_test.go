package service

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
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

// longestHeader is how many bytes the header of a 402 may have: proxies such as nginx have 4,096 for it, and add headers of their own.
const longestHeader = 3800

// wantShortHeader sends a request as a browser and reports a 402 whose header is too long, as it was sent.
func (w *world) wantShortHeader(what, method, path, body string, headers ...string) {
	w.T.Helper()
	address := strings.TrimPrefix(w.url, "http://")
	conn, err := net.Dial("tcp", address)
	testkit.NoError(w.T, err)
	defer func() { _ = conn.Close() }()
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nOrigin: https://agent.example\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n", method, path, address, len(body))
	for i := 0; i < len(headers); i += 2 {
		request += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	if _, err := fmt.Fprint(conn, request, "\r\n", body); err != nil {
		w.T.Fatal(err)
	}
	size, lines := 0, bufio.NewReader(conn)
	for line := ""; line != "\r\n"; size += len(line) {
		if line, err = lines.ReadString('\n'); err != nil {
			w.T.Fatal(err)
		}
		if size == 0 && !strings.HasPrefix(line, "HTTP/1.1 402 ") {
			w.T.Errorf("%s: %s", what, line)
		}
	}
	if size >= longestHeader {
		w.T.Errorf("%s: the header has %d bytes, want less than %d", what, size, longestHeader)
	}
}

// TestHeadersPassProxies: the whole header of each 402, also after a payment, passes a proxy with the usual buffer.
func TestHeadersPassProxies(t *testing.T) {
	t.Parallel()
	longURL := func(config *server.Config, _ *payment.Chain, _ string) {
		config.BaseURL = "https://messages-of-agents.example.com"
	}
	exactFirst := func(config *server.Config, _ *payment.Chain, _ string) { config.Channels.ExactFirst = true }
	for first, settings := range map[string][]setting{
		"batch-settlement": {withChannels, longURL}, "exact": {withChannels, exactFirst, longURL},
	} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, settings...)
			for name, route := range testkit.Operations {
				if route.Operation.Extensions["x-payment-info"] != nil {
					w.wantShortHeader(name, route.Method, route.Path, "")
				}
			}
			alice, bob, payer := w.openChannel()
			paid := payer.sign(sendPath, 5000, 0)
			body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":"another"}`
			w.wantShortHeader("a voucher that was charged", http.MethodPost, sendPath, body, "X-API-KEY", alice.Key, "PAYMENT-SIGNATURE", paid)
		})
	}
}
