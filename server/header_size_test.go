package server_test

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
)

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
