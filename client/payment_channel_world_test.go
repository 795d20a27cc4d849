package client_test

import (
	"context"
	"crypto/ecdsa"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// channelPayer returns PaymentChannels of account 0.
func channelPayer(t *testing.T, store client.PaymentChannelStore) *client.PaymentChannels {
	t.Helper()
	return client.NewPaymentChannels(x402.NewKeySigner(accountKey(t, 0)), store, 1_000_000)
}

func accountKey(t *testing.T, account int) *ecdsa.PrivateKey {
	t.Helper()
	key, err := evm.HexToECDSA(strings.TrimPrefix(devnet.Accounts()[account].PrivateKey, "0x"))
	testkit.NoError(t, err)
	return key
}

// configOf returns the channel of account 0.
func (s *channelShop) configOf() x402.ChannelConfig {
	s.t.Helper()
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(accountKey(s.t, 0)), "0x"+strings.Repeat("0", 64), s.offers[1])
	testkit.NoError(s.t, err)
	return signer.Config
}

func fileStore(t *testing.T, folder string) *client.FileChannels {
	t.Helper()
	store, err := client.NewFileChannels(folder)
	testkit.NoError(t, err)
	return store
}

// ask returns the 402 of a call.
func (s *channelShop) ask() *x402.PaymentRequired {
	s.t.Helper()
	response, err := s.Client().Get(s.URL)
	testkit.NoError(s.t, err)
	_ = response.Body.Close()
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	testkit.NoError(s.t, err)
	return required
}

// post sends one paid request. It does not use the default transport: a server of another test that closes would close its connections.
func (s *channelShop) post(ctx context.Context, payment string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	request.Header.Set(x402.HeaderPaymentSignature, payment)
	return s.Client().Do(request)
}

// buy makes one paid call and returns its status, or 0 with an error, and what it was charged.
func (s *channelShop) buy(channels *client.PaymentChannels) (status int, charged uint64, err error) {
	s.t.Helper()
	response, charged, err := channels.Pay(s.t.Context(), s.ask(), 1_000_000, s.post)
	if response != nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		status = response.StatusCode
	}
	return status, charged, err
}

// wantBuys makes calls that must succeed at once.
func (s *channelShop) wantBuys(channels *client.PaymentChannels, n int) {
	s.t.Helper()
	for i := range n {
		if status, charged, err := s.buy(channels); status != http.StatusOK || charged != channelPrice || err != nil {
			s.t.Fatalf("call %d of %d: status %d, charged %d, %v, want 200 for %d", i+1, n, status, charged, err, channelPrice)
		}
	}
}

// wantSums checks what the server charged in all, and what is in its channels.
func (s *channelShop) wantSums(charged, balance uint64) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum uint64
	for _, amount := range s.charged {
		sum += amount
	}
	if held := s.ledger.Balance(x402.BatchSettlementContract); sum != charged || held != balance {
		s.t.Errorf("%d was charged and %d deposited, want %d and %d", sum, held, charged, balance)
	}
}

// wantTypes checks which payments the server saw since the last check.
func (s *channelShop) wantTypes(want string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.seen, " "); got != want {
		s.t.Errorf("the server saw %q, want %q", got, want)
	}
	s.seen = nil
}

func (s *channelShop) fail(faults ...fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

func cutOff(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }

func refuseWith(status int) func(http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool {
		w.WriteHeader(status)
		return true
	}
}

// later is a clock that is ahead.
func later(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}
