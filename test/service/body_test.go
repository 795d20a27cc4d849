package service

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402"
)

// TestUnpaidBodies: without a payment at most 16 KiB of a body are read. A longer one gets the price at once, valid or not; one that is
// too long for the operation gets 413.
func TestUnpaidBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.listen()
	const send = "/chat/private/send"
	wrong := func(kib int) string { return `{"x":"` + strings.Repeat("x", kib<<10) + `"}` }
	w.call(http.MethodPost, send, wrong(15)).Want(t, "a wrong body of 15 KiB", 400)
	w.call(http.MethodPost, send, wrong(17)).Want(t, "a wrong body of 17 KiB", 402)
	w.call(http.MethodPost, send, wrong(17), x402.HeaderPaymentSignature, "x").Want(t, "the same with a payment", 400)
	w.call(http.MethodPost, send, wrong(256)).Want(t, "a body that is too long for the operation", 413)
	head := "POST " + send + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for name, test := range map[string]struct {
		request string
		want    int
	}{
		"announced, nothing sent, Expect": {head + "Expect: 100-continue\r\nContent-Length: 60000\r\n\r\n", 402},
		"too long, nothing sent, Expect":  {head + "Expect: 100-continue\r\nContent-Length: 260000\r\n\r\n", 413},
		"chunked, 60,000 bytes": {head + "Transfer-Encoding: chunked\r\n\r\nea60\r\n" + strings.Repeat("x", 60_000) + "\r\n0\r\n\r\n",
			402},
		"chunked, wrong, 10 bytes": {head + "Transfer-Encoding: chunked\r\n\r\na\r\n" + strings.Repeat("x", 10) + "\r\n0\r\n\r\n", 400},
	} {
		if status, text := told(w.dial(address, test.request), patience); status != test.want {
			t.Errorf("%s: %d %s, want %d", name, status, text, test.want)
		}
	}
}

// TestLongBodiesArePaid: usual clients that send 60 KB get the price, pay, and succeed, whether they announce the length, send chunks, or
// wait for 100 Continue, with HTTP/1.1 and HTTP/2.
func TestLongBodiesArePaid(t *testing.T) {
	t.Parallel()
	w, address, roots := listenTLS(t, func(*server.Config) {})
	w.url = "https://" + address
	plainHTTP := w.http
	w.http = tlsClient(t, roots, false)
	alice, bob := w.agent("alice"), w.agent("bob")
	for _, two := range []bool{false, true} {
		caller := tlsClient(t, roots, two)
		for name, prepare := range map[string]func(*http.Request){
			"announced": func(*http.Request) {},
			"chunked":   func(r *http.Request) { r.ContentLength = -1 },
			"Expect":    func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		} {
			content := fmt.Sprintf("%t %s ", two, name) + strings.Repeat("𝕏", 15_000)
			w.Secret(content)
			do := func(headers ...string) int {
				body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(content) + `}`
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/chat/private/send",
					io.NopCloser(strings.NewReader(body)))
				testkit.NoError(t, err)
				request.ContentLength = int64(len(body))
				for i := 0; i < len(headers); i += 2 {
					request.Header.Set(headers[i], headers[i+1])
				}
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("X-API-KEY", alice.Key)
				prepare(request)
				response, err := caller.Do(request)
				if err != nil {
					t.Errorf("HTTP/2 %t, %s: %v", two, name, err)
					return 0
				}
				defer response.Body.Close()
				raw, _ := io.ReadAll(response.Body)
				if response.StatusCode == http.StatusPaymentRequired && (response.Header.Get(x402.HeaderPaymentRequired) == "" || len(raw) == 0) {
					t.Errorf("HTTP/2 %t, %s: the 402 has no price", two, name)
				}
				return response.StatusCode
			}
			if status := do(); status != http.StatusPaymentRequired {
				t.Errorf("HTTP/2 %t, %s, without payment: %d, want 402", two, name, status)
			}
			if status := do(x402.HeaderPaymentSignature, w.sign(alice.Wallet, "/chat/private/send")); status != http.StatusOK {
				t.Errorf("HTTP/2 %t, %s, paid: %d, want 200", two, name, status)
			}
		}
	}
	w.http = plainHTTP
}

// unfinished begins a body that has ten seconds to arrive, if it comes with a payment.
var unfinished = strings.Repeat(" ", 70<<10)

// TestUnfinishedBodiesMakeRoom: who sends bodies slowly keeps nobody out, at its own address or at others.
func TestUnfinishedBodiesMakeRoom(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]edge.Limits{
		"an address": {ConnectionsPerAddress: 8},
		"all":        {Connections: 8, ConnectionsPerAddress: 1000},
	} {
		w := newWorld(t, withLimits(limits))
		address := w.listen()
		for range 8 {
			w.dial(address, "POST /chat/private/send HTTP/1.1\r\nHost: x\r\nPAYMENT-SIGNATURE: x\r\n"+
				"Content-Type: application/json\r\nContent-Length: 190000\r\n\r\n"+unfinished)
		}
		if !testkit.Eventually(8*time.Second, func() bool { return strings.Contains(w.admin("/metrics"), "parley_requests_running 8\n") }) {
			t.Fatalf("%s: the unfinished requests do not run", name)
		}
		w.call(http.MethodGet, "/skill", "").Want(t, name+": a newcomer", 200)
	}
}

// TestSlowBodiesEndEarly: a body must arrive at a least rate; one that comes slowly but steadily is read.
func TestSlowBodiesEndEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	address := w.listen()
	const text = "POST /agent/profile HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
	stuck := w.dial(address, text+"{")
	if status, reply := told(stuck, 8*time.Second); status != http.StatusRequestTimeout ||
		!strings.Contains(reply, "request_timeout") || !strings.Contains(reply, "at least 8192 bytes a second") {
		t.Errorf("a body that stops after a byte: %d %s, want 408 before eight seconds", status, reply)
	}
	cut := w.dial(address, text+"{")
	_ = cut.(*net.TCPConn).CloseWrite()
	if status, reply := told(cut, patience); status != http.StatusBadRequest ||
		!strings.Contains(reply, "the request body was truncated") {
		t.Errorf("a body that ends too early: %d %s, want 400", status, reply)
	}
	slow := w.dial(address, text)
	for _, b := range []byte(`{"username":"alice"}`) {
		time.Sleep(20 * time.Millisecond)
		_, _ = slow.Write([]byte{b})
	}
	if status, reply := told(slow, patience); status != http.StatusPaymentRequired {
		t.Errorf("a body of 20 bytes in half a second: %d %s, want 402", status, reply)
	}
}

// TestStreamsMakeRoom: with HTTP/2 an unfinished request is displaced when there is no room for another one. One that is complete stays,
// and a further one is refused.
func TestStreamsMakeRoom(t *testing.T) {
	t.Parallel()
	w, address, roots := listenTLS(t, func(config *server.Config) { config.Limits.ConnectionsPerAddress = 2 })
	w.url, w.http = "https://"+address, tlsClient(t, roots, true)
	alice := w.agent("alice")
	get := func() int { return w.call(http.MethodGet, "/skill", "").Status }
	ended := make(chan int, 2)
	for range 2 {
		body, writer := io.Pipe()
		defer func() { _ = writer.Close() }()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+"/chat/private/send", body)
		testkit.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(x402.HeaderPaymentSignature, "x")
		go func() {
			status := 0
			if response, err := w.http.Do(request); err == nil {
				status = response.StatusCode
				_ = response.Body.Close()
			}
			ended <- status
		}()
		_, _ = io.WriteString(writer, unfinished)
	}
	if !testkit.Eventually(5*time.Second, func() bool { return strings.Contains(w.admin("/metrics"), "parley_requests_running 2\n") }) {
		t.Fatal("the unfinished requests do not run")
	}
	if status := get(); status != http.StatusOK {
		t.Errorf("beside unfinished requests: %d, want 200", status)
	}
	if status := <-ended; status != http.StatusServiceUnavailable {
		t.Errorf("an unfinished request that made room: %d, want 503", status)
	}
	release, settling := make(chan struct{}), make(chan struct{}, 2)
	payments := []string{w.sign(alice.Wallet, "/agent/profile"), w.sign(alice.Wallet, "/agent/profile")}
	mend := w.atSettlement(func() {
		settling <- struct{}{}
		<-release
	})
	paid := make(chan int, 2)
	for _, payment := range payments {
		go func() {
			r, _ := w.try(http.MethodPost, "/agent/profile", `{"username":"alice"}`, "X-API-KEY", alice.Key, x402.HeaderPaymentSignature, payment)
			paid <- r.Status
		}()
		<-settling
	}
	if status := get(); status != http.StatusServiceUnavailable {
		t.Errorf("beside two requests at work: %d, want 503", status)
	}
	close(release)
	for range payments {
		if status := <-paid; status != http.StatusOK {
			t.Errorf("a request at work: %d, want 200", status)
		}
	}
	mend()
}

// TestContentCodings: a coded body is refused before it is read as JSON, and a byte order mark is named: it is invisible.
func TestContentCodings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const path, body = "/agent/profile", `{"username":"alice"}`
	for _, coding := range []string{"gzip", "deflate", "br", "zstd", "Identity, GZIP"} {
		refused := w.call(http.MethodPost, path, body, "Content-Encoding", coding)
		refused.WantRefused(t, coding, http.StatusUnsupportedMediaType, "unsupported_media_type")
		if !strings.Contains(refused.Message, strconv.Quote(coding)) {
			t.Errorf("%s: %q does not name the coding", coding, refused.Message)
		}
	}
	for _, coding := range []string{"identity", "IDENTITY", ""} {
		w.call(http.MethodPost, path, body, "Content-Encoding", coding).Want(t, "not coded: "+coding, http.StatusPaymentRequired)
	}
	w.call(http.MethodPost, path, "", "Content-Encoding", "gzip").Want(t, "no body", http.StatusPaymentRequired)
	for mark, name := range map[string]string{"\xEF\xBB\xBF": "UTF-8", "\xFE\xFF": "UTF-16", "\xFF\xFE": "UTF-16"} {
		refused := w.call(http.MethodPost, path, mark+body)
		refused.WantRefused(t, "a byte order mark", http.StatusBadRequest, "invalid_request")
		if !strings.Contains(refused.Message, "byte order mark (U+FEFF) in "+name) {
			t.Errorf("a byte order mark in %s: %q does not name it", name, refused.Message)
		}
	}
}
