package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestRetryAfterIsBounded: no value of Retry-After makes a Payer send in a loop without a pause.
// When it gives up, the payment counts as spent.
func TestRetryAfterIsBounded(t *testing.T) {
	t.Parallel()
	for _, seconds := range []string{"0", "-1", "9223372037", "99999999999999999999"} {
		s := open(t, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", seconds)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		p := payer(t, client.Limits{PerCall: 5000, Total: 5000})
		p.Patience = 500 * time.Millisecond
		if status, err := s.buy(t, p); status != http.StatusServiceUnavailable || err != nil || p.Spent() != 5000 {
			t.Errorf("Retry-After %s: status %d, %v, spent %d", seconds, status, err, p.Spent())
		}
		if sent := len(s.payments); sent > 11 {
			t.Errorf("Retry-After %s: the payment was sent %d times in half a second", seconds, sent)
		}
	}
}

// TestLongResponse: a response that is longer than any of the contract is an error, whatever it is.
func TestLongResponse(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"long":         strings.Repeat(" ", client.MaxResponse+1),
		"small values": "[" + strings.Repeat("0,", 300_000) + "0]",
	} {
		s := open(t, respond(http.StatusOK, body))
		paying := &http.Client{Transport: payer(t, client.Limits{PerCall: 5000, Total: 5000})}
		response, err := paying.Post(s.URL, "", nil)
		testkit.NoError(t, err)
		if _, err := io.ReadAll(response.Body); !errors.Is(err, client.ErrTooLong) {
			t.Errorf("%s: %v, want that it is too long", name, err)
		}
		_ = response.Body.Close()
	}
	s := open(t, respond(http.StatusOK, `{"text":"`+strings.Repeat(`,[{\\"`, 1_000_000)+`"}`))
	if status, err := s.buy(t, payer(t, client.Limits{PerCall: 5000, Total: 5000})); status != http.StatusOK || err != nil {
		t.Errorf("a long text: status %d, %v", status, err)
	}
}

// TestRefundKey: the API key goes with a refund to the server of the account, and nowhere else.
func TestRefundKey(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	shop := openChannelShop(t)
	var keys []string
	var redirects atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if redirects.Load() {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		keys = append(keys, r.Header.Get("X-API-KEY"))
		shop.serve(w, r)
	}))
	t.Cleanup(front.Close)
	p := payerFrom(t, &client.MemoryChannels{})
	shop.wantCalls(p, 1)
	if refunded, err := p.Refund(t.Context(), front.URL, "parley_key"); err != nil || refunded != channelDeposit-channelPrice {
		t.Errorf("%d was refunded, %v", refunded, err)
	}
	if len(keys) != 2 || keys[0] != "parley_key" || keys[1] != "parley_key" {
		t.Errorf("the requests of a refund have the keys %q", keys)
	}
	redirects.Store(true)
	if _, err := p.Refund(t.Context(), front.URL, "parley_key"); err == nil || elsewhere.Load() > 0 {
		t.Errorf("a redirect: %v, and another server gets %d requests", err, elsewhere.Load())
	}
}

// atOnce is a server that does not wait: each call returns an empty page at once.
type atOnce struct{ calls int }

func (s *atOnce) Do(*http.Request) (*http.Response, error) {
	if s.calls++; s.calls > 100 {
		return nil, errors.New("it is paid in a loop")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"messages":[],"notices":[],"cursor":"c0"}`))}, nil
}

// TestFollowDoesNotLoop: a server that does not wait is not paid in a loop.
func TestFollowDoesNotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &atOnce{}
		c, err := client.NewClientWithResponses("http://parley.test", client.WithHTTPClient(server))
		testkit.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = c.Follow(ctx, "", func(context.Context, *client.UnreadPage) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || server.calls > 13 {
			t.Errorf("%d calls in a minute, and then %v", server.calls, err)
		}
	})
}
