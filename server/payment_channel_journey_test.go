package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestClientPaysFromAChannel: the Go client's own payment channels against the server, with restarts, a top-up and a refund.
func TestClientPaysFromAChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	revenue, settles := w.Revenue(), w.settles.Load()
	folder := t.TempDir()
	open := func() *client.PaymentChannels {
		t.Helper()
		stored, err := client.NewFileChannels(folder)
		if err != nil {
			t.Fatal(err)
		}
		channels := client.NewPaymentChannels(x402.NewKeySigner(alice.Wallet), stored, testkit.Dollar)
		channels.Deposit = 50_000
		return channels
	}
	send := func(body string) client.Send {
		return func(ctx context.Context, payment string) (*http.Response, error) {
			w.Secret(payment)
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+sendPath, strings.NewReader(body))
			if err != nil {
				return nil, err
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-API-KEY", alice.Key)
			request.Header.Set(x402.HeaderPaymentSignature, payment)
			return w.http.Do(request)
		}
	}
	channels := open()
	for i := range 25 {
		if i%7 == 0 {
			channels = open() // a restart
		}
		body := `{"recipient_agent_id":` + quote(bob.ID) + `,"content":` + quote(fmt.Sprint("message ", i)) + `}`
		response, charged, err := channels.Pay(t.Context(), w.price(sendPath), testkit.Dollar, send(body))
		if err != nil || response.StatusCode != http.StatusOK || charged != 5000 {
			t.Fatalf("message %d: %v, charged %d, %v", i, response, charged, err)
		}
		_ = response.Body.Close()
	}
	if n := w.Count(`SELECT count(*) FROM messages`); n != 25 || w.Revenue() != revenue || w.settles.Load() != settles+3 {
		t.Errorf("%d messages, %d settlements, want 25 and 3 deposits", n, w.settles.Load()-settles)
	}
	refunded, response, err := channels.Refund(t.Context(), w.priceOf(http.MethodGet, "/agent/me"), 0, func(ctx context.Context, payment string) (*http.Response, error) {
		w.Secret(payment)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/agent/me", nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set(x402.HeaderPaymentSignature, payment)
		return w.http.Do(request)
	})
	if err != nil || refunded != 25_000 {
		t.Errorf("refunded %d of 25000: %v %v", refunded, response, err)
	}
	if response != nil {
		_ = response.Body.Close()
	}
	w.due()
	w.recoverUntil(func() bool { return w.Revenue() == revenue+125_000 })
	if w.Revenue() != revenue+125_000 {
		t.Errorf("the payee has %d more, want 125000", w.Revenue()-revenue)
	}
	w.checkChannels()
}
