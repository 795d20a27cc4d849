package service

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const smallError = 16 << 10 // bytes

// wasteful are requests that are wrong in as many places as a body, a header or a query can hold.
func wasteful() map[string]struct {
	method, path, body string
	headers            []string
	status             int
} {
	type request = struct {
		method, path, body string
		headers            []string
		status             int
	}
	var invented strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&invented, `,"a%d":1`, i)
	}
	ones := strings.Repeat("1,", 59_999) + "1"
	encoded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	post := func(path, body string, status int) request {
		return request{http.MethodPost, path, body, []string{x402.HeaderPaymentSignature, "x"}, status} // else 16 KiB are read
	}
	return map[string]request{
		"60,000 wrong entries": post("/chat/group/edit", `{"chat_id":`+quote(noChat)+`,"add_member_ids":[`+ones+`]}`,
			http.StatusBadRequest),
		"100 wrong entries": post("/chat/group/edit", `{"chat_id":`+quote(noChat)+`,"add_member_ids":[`+ones[:199]+`]}`,
			http.StatusBadRequest),
		"60,000 entries in place of a text": post("/chat/private/send", `{"recipient_agent_id":`+quote(noAgent)+`,"content":[`+ones+`]}`,
			http.StatusBadRequest),
		"20,000 invented fields": post("/channel/send", `{"x":1`+invented.String()[:190_000]+`}`, http.StatusBadRequest),
		"20 invented fields":     post("/channel/send", `{"x":1`+invented.String()[:120]+`}`, http.StatusBadRequest),
		"a long invented field":  post("/chat/private/send", `{"`+strings.Repeat("<", 190_000)+`":1}`, http.StatusBadRequest),
		"a long field, twice": post("/chat/private/send", `{"`+strings.Repeat("x", 90_000)+`":1,"`+strings.Repeat("x", 90_000)+`":1}`,
			http.StatusBadRequest),
		"deep arrays": post("/chat/private/send", strings.Repeat("[", 9_000)+strings.Repeat("]", 9_000), http.StatusBadRequest),
		"240 KB for two short texts": post("/register/request_account", `{"requested_username":[`+strings.Repeat("1,", 119_999)+`1]}`,
			http.StatusRequestEntityTooLarge),
		"240 KB for a hundred ids": post("/chat/group/create", `{"name":"x","initial_member_ids":[`+strings.Repeat("1,", 119_999)+`1]}`,
			http.StatusRequestEntityTooLarge),
		"a body for a GET": {http.MethodGet, "/agent/me", strings.Repeat(" ", 240_000), nil, http.StatusBadRequest},
		"a long parameter": {http.MethodGet, "/agent/unread?" + strings.Repeat("x", 50_000) + "=1", "",
			[]string{x402.HeaderPaymentSignature, "x"}, http.StatusBadRequest},
		"a payment with a long network": {http.MethodPost, "/agent/profile", `{"username":"alice"}`, []string{x402.HeaderPaymentSignature,
			encoded(`{"x402Version":2,"accepted":{"network":"` + strings.Repeat("x", 10_000) + `"}}`)}, 0},
		"a payment with a long name": {http.MethodPost, "/agent/profile", `{"username":"alice"}`, []string{x402.HeaderPaymentSignature,
			encoded(`{"` + strings.Repeat("<", 10_000) + `":1,"` + strings.Repeat("<", 10) + `":2}`)}, 0},
	}
}

// TestErrorsStaySmall: whatever is wrong with a request, and in however many places, the error has at most 20 details and
// 16 KiB, and so has each of its headers.
func TestErrorsStaySmall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	for name, r := range wasteful() {
		a := w.call(r.method, r.path, r.body, append(r.headers, "X-API-KEY", alice.Key)...)
		if a.Status != r.status && (r.status != 0 || (a.Status != http.StatusBadRequest && a.Status != http.StatusPaymentRequired)) {
			t.Errorf("%s: %d %.300s, want %d", name, a.Status, a.Body, r.status)
		}
		if len(a.Body) > smallError || len(a.Details) > 20 {
			t.Errorf("%s: the error has %d bytes and %d details, want at most %d and 20", name, len(a.Body), len(a.Details), smallError)
		}
		for key, values := range a.Header {
			if len(strings.Join(values, "")) > 8<<10 {
				t.Errorf("%s: the header %s has %d bytes", name, key, len(strings.Join(values, "")))
			}
		}
	}
	for _, route := range testkit.Operations {
		if a := w.call(route.Method, route.Path, ""); a.Status == http.StatusPaymentRequired && len(a.Body) > smallError {
			t.Errorf("the 402 of %s has %d bytes, want at most %d", route.Path, len(a.Body), smallError)
		}
	}
}

// TestWrongRequestsCostLittle: no request costs more memory than a few times its own size, or more than a moment. It runs
// alone, because it looks at what the whole process allocates.
func TestWrongRequestsCostLittle(t *testing.T) {
	w := newWorld(t)
	handler := w.server.Handler()
	for name, r := range wasteful() {
		allocated, took := uint64(0), time.Minute
		for range 3 { // another program on this machine may hold up one
			request := httptest.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body))
			request.Header.Set("Content-Type", "application/json")
			for i := 0; i < len(r.headers); i += 2 {
				request.Header.Set(r.headers[i], r.headers[i+1])
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			started := time.Now()
			handler.ServeHTTP(httptest.NewRecorder(), request)
			took = min(took, time.Since(started))
			runtime.ReadMemStats(&after)
			allocated = max(allocated, after.TotalAlloc-before.TotalAlloc)
		}
		if allocated > 8<<20 || took > 10*time.Second {
			t.Errorf("%s: %d bytes are allocated in %v, want at most 8 MiB in ten seconds", name, allocated, took)
		} else {
			t.Logf("%s: %d KiB in %v", name, allocated>>10, took)
		}
	}
}
