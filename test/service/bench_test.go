package service

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// These measure the server's own way, without a network: a recorder takes the reply. `make allocs` compares what they
// allocate with test/bench/allocs.txt.

// benchWorld is a server with two agents. Its facilitator replies at once, over HTTP.
func benchWorld(b *testing.B, settings ...setting) (w *world, alice, bob *agent) {
	w = newWorld(b, append(settings, withoutLimits)...)
	return w, w.agent("alice"), w.agent("bob")
}

// serve lets the handler reply one request.
func (w *world) serve(b *testing.B, method, path, body string, want int, headers ...string) {
	b.Helper()
	request := httptest.NewRequestWithContext(b.Context(), method, path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(recorder, request)
	if recorder.Code != want {
		b.Fatalf("%s replies %d %s, want %d", path, recorder.Code, recorder.Body, want)
	}
}

// BenchmarkChallenge asks for a price: no payment, no body.
func BenchmarkChallenge(b *testing.B) {
	w := newWorld(b, withoutLimits)
	b.ReportAllocs()
	for b.Loop() {
		w.serve(b, http.MethodPost, "/chat/private/send", "", http.StatusPaymentRequired)
	}
}

// BenchmarkValidation sends a good request without payment: it is validated, then asked for its price.
func BenchmarkValidation(b *testing.B) {
	w := newWorld(b, withoutLimits)
	body := `{"recipient_agent_id":"agent_01k70t995eeeqsqssjfq4h8qx8","content":"` + strings.Repeat("The night train is late. ", 20) + `"}`
	b.ReportAllocs()
	for b.Loop() {
		w.serve(b, http.MethodPost, "/chat/private/send", body, http.StatusPaymentRequired)
	}
}

// BenchmarkViolation sends a request that breaks the contract in two places.
func BenchmarkViolation(b *testing.B) {
	w := newWorld(b, withoutLimits)
	b.ReportAllocs()
	for b.Loop() {
		w.serve(b, http.MethodPost, "/chat/private/send", `{"recipient_agent_id":"bob","text":"hello"}`, http.StatusBadRequest)
	}
}

// benchPaid makes paid calls, each with a payment that is signed while the clock stands.
func benchPaid(b *testing.B, w *world, caller *agent, path, body string) {
	required := w.price(path)
	sign := func() string {
		payload, err := x402.Sign(b.Context(), x402.NewKeySigner(caller.Wallet), required.Accepts[0], &required.Resource, required.Extensions,
			time.Now())
		testkit.NoError(b, err)
		header, err := x402.EncodePaymentPayload(payload)
		testkit.NoError(b, err)
		return header
	}
	for range 20 { // so that every statement is prepared on every connection
		w.serve(b, http.MethodPost, path, body, http.StatusOK, "X-API-KEY", caller.Key, x402.HeaderPaymentSignature, sign())
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		header := sign()
		b.StartTimer()
		w.serve(b, http.MethodPost, path, body, http.StatusOK, "X-API-KEY", caller.Key, x402.HeaderPaymentSignature, header)
	}
}

// benchDeposit lasts for 10,000 sends.
const benchDeposit = 50 * testkit.Dollar

// benchVoucher makes calls that a payment channel pays, each with a voucher that is signed while the clock stands.
func benchVoucher(b *testing.B, w *world, caller *agent, method, path, body string) {
	offer := offerOf(b, w.priceOf(method, path))
	price, err := strconv.ParseUint(offer.Amount, 10, 63)
	testkit.NoError(b, err)
	payer, err := x402.NewChannelSigner(x402.NewKeySigner(caller.Wallet), zeroSalt, offer)
	testkit.NoError(b, err)
	charged := uint64(0)
	pay := func(deposit uint64) string {
		charged += price
		payment, err := payer.Sign(b.Context(), charged, deposit, time.Now())
		testkit.NoError(b, err)
		header, err := x402.EncodeBatchPayment(payment)
		testkit.NoError(b, err)
		return header
	}
	w.serve(b, method, path, body, http.StatusOK, "X-API-KEY", caller.Key, x402.HeaderPaymentSignature, pay(benchDeposit))
	for range 20 { // so that every statement is prepared on every connection
		w.serve(b, method, path, body, http.StatusOK, "X-API-KEY", caller.Key, x402.HeaderPaymentSignature, pay(0))
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		header := pay(0)
		b.StartTimer()
		w.serve(b, method, path, body, http.StatusOK, "X-API-KEY", caller.Key, x402.HeaderPaymentSignature, header)
	}
}

func BenchmarkVoucherSend(b *testing.B) {
	w, alice, bob := benchWorld(b, withChannels)
	alice.send(bob, "The first message creates the chat.")
	benchVoucher(b, w, alice, http.MethodPost, sendPath, fmt.Sprintf(`{"recipient_agent_id":%q,"content":"The night train is late."}`, bob.ID))
}

// BenchmarkVoucherUnread polls: nothing is unread.
func BenchmarkVoucherUnread(b *testing.B) {
	w, alice, _ := benchWorld(b, withChannels)
	benchVoucher(b, w, alice, http.MethodGet, "/agent/unread", "")
}

// BenchmarkPaidProfile takes the gate with the smallest operation behind it.
func BenchmarkPaidProfile(b *testing.B) {
	w, alice, bob := benchWorld(b)
	benchPaid(b, w, alice, "/agent/profile", fmt.Sprintf(`{"agent_id":%q}`, bob.ID))
}

func BenchmarkPaidSend(b *testing.B) {
	w, alice, bob := benchWorld(b)
	benchPaid(b, w, alice, "/chat/private/send", fmt.Sprintf(`{"recipient_agent_id":%q,"content":"The night train is late."}`, bob.ID))
}

func BenchmarkPaidMessages(b *testing.B) {
	w, alice, bob := benchWorld(b)
	chat, _ := alice.send(bob, "number 1")
	for i := 2; i <= 50; i++ {
		alice.send(bob, fmt.Sprintf("number %d", i))
	}
	benchPaid(b, w, bob, "/chat/private/messages", fmt.Sprintf(`{"chat_id":%q}`, chat))
}

// BenchmarkRepetition sends the same payment again: the reply comes out of the ledger.
func BenchmarkRepetition(b *testing.B) {
	w, alice, bob := benchWorld(b)
	const path = "/agent/profile"
	headers := []string{"X-API-KEY", alice.Key, x402.HeaderPaymentSignature, w.sign(alice.Wallet, path)}
	body := fmt.Sprintf(`{"agent_id":%q}`, bob.ID)
	w.serve(b, http.MethodPost, path, body, http.StatusOK, headers...)
	b.ReportAllocs()
	for b.Loop() {
		w.serve(b, http.MethodPost, path, body, http.StatusOK, headers...)
	}
}
