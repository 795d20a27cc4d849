package client_test

import (
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// payerFrom returns a Payer of account 0 whose payment channels are in a store.
func payerFrom(t *testing.T, store client.PaymentChannelStore) *client.Payer {
	t.Helper()
	p, err := client.NewPayer(devnet.Accounts()[0].PrivateKey, client.Limits{PerCall: channelDeposit, Total: 100 * channelDeposit})
	testkit.NoError(t, err)
	p.Patience, p.Channels.Store = 2*time.Second, store
	return p
}

// call makes one call and returns its status.
func (s *channelShop) call(p *client.Payer) int {
	s.t.Helper()
	response, err := (&http.Client{Transport: p}).Post(s.URL, "", strings.NewReader("{}"))
	if err != nil {
		s.t.Errorf("a call: %v", err)
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode
}

// wantCalls makes calls that must succeed and cost their price.
func (s *channelShop) wantCalls(p *client.Payer, n int) {
	s.t.Helper()
	before := p.Spent()
	for range n {
		if status := s.call(p); status != http.StatusOK {
			s.t.Errorf("a call has status %d", status)
		}
	}
	if spent := p.Spent() - before; spent != uint64(n)*channelPrice { //nolint:gosec // a few calls
		s.t.Errorf("%d calls cost %d, want %d each", n, spent, channelPrice)
	}
}

// TestPayerPaysFromPaymentChannels: without a setting, and whichever offer comes first. The channel survives a restart.
func TestPayerPaysFromPaymentChannels(t *testing.T) {
	t.Parallel()
	shop, folder := openChannelShop(t), t.TempDir()
	shop.wantCalls(payerFrom(t, fileStore(t, folder)), 8)
	shop.offers[0], shop.offers[1] = shop.offers[1], shop.offers[0]
	shop.wantCalls(payerFrom(t, fileStore(t, folder)), 4)
	shop.wantTypes("deposit" + strings.Repeat(" voucher", 9) + " deposit voucher")
	shop.wantSums(12_000, 2*channelDeposit)
}

// TestPayerPaysExactly: what a payment channel cannot pay is paid with a transfer, once.
func TestPayerPaysExactly(t *testing.T) {
	t.Parallel()
	refuse := func(reason string) func(shop *channelShop, p *client.Payer) {
		return func(shop *channelShop, _ *client.Payer) {
			shop.fail(fault{before: func(w http.ResponseWriter) bool {
				shop.demand(w, reason, shop.offers)
				return true
			}})
		}
	}
	for name, row := range map[string]struct {
		prepare func(shop *channelShop, p *client.Payer)
		types   string
	}{
		"no payment channels":            {func(_ *channelShop, p *client.Payer) { p.Channels = nil }, "exact"},
		"none are offered":               {func(shop *channelShop, _ *client.Payer) { shop.offers = shop.offers[:1] }, "exact"},
		"a deposit for nine calls":       {func(_ *channelShop, p *client.Payer) { p.Channels.MaxDeposit = 9 * channelPrice }, "exact"},
		"no deposits":                    {func(_ *channelShop, p *client.Payer) { p.Channels.MaxDeposit = 0 }, "exact"},
		"the wallet cannot deposit":      {refuse("insufficient_funds"), "deposit exact"},
		"the server refuses the voucher": {refuse("invalid_batch_settlement_evm_withdrawal_pending"), "deposit exact"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop, p := openChannelShop(t), payerFrom(t, &client.MemoryChannels{})
			row.prepare(shop, p)
			shop.wantCalls(p, 3)
			if first := strings.Count(row.types, " ") + 1; shop.names[0] != shop.names[first-1] || shop.names[0] == shop.names[first] {
				t.Errorf("the payment identifiers are %q, want one for all payments of a call", shop.names)
			}
			shop.wantTypes(row.types + " exact exact") // another deposit is not tried at once
			shop.wantSums(0, 0)
			if got := shop.ledger.Balance(devnet.Payee); got != 3*channelPrice {
				t.Errorf("the payee received %d, want the prices", got)
			}
		})
	}
}

// TestPayerChannelLimits: the limits count what calls cost, and bound the deposits.
func TestPayerChannelLimits(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	p, err := client.NewPayer(devnet.Accounts()[0].PrivateKey, client.Limits{PerCall: channelDeposit, Total: 15 * channelPrice})
	testkit.NoError(t, err)
	p.Channels.Store = &client.MemoryChannels{}
	shop.wantCalls(p, 15)
	shop.wantTypes("deposit" + strings.Repeat(" voucher", 9) + strings.Repeat(" exact", 5)) // a deposit for five calls is none
	shop.wantSums(10_000, channelDeposit)
	if response, err := (&http.Client{Transport: p}).Post(shop.URL, "", strings.NewReader("{}")); err == nil {
		_ = response.Body.Close()
		t.Error("the call above the limit was paid")
	}
	shop.wantTypes("")
}

// TestPayerRepeatsVouchers: a lost response is requested again with the same voucher, also by a new process.
func TestPayerRepeatsVouchers(t *testing.T) {
	t.Parallel()
	shop, folder := openChannelShop(t), t.TempDir()
	p := payerFrom(t, fileStore(t, folder))
	shop.wantCalls(p, 1)
	for _, lost := range []func(http.ResponseWriter) bool{cutOff, refuseWith(http.StatusServiceUnavailable)} {
		shop.fail(fault{after: lost})
		shop.wantCalls(p, 1)
	}
	shop.wantTypes("deposit voucher voucher voucher voucher")
	shop.wantSums(3000, channelDeposit)
	p.Patience = time.Millisecond
	shop.fail(fault{after: refuseWith(http.StatusServiceUnavailable)})
	if status := shop.call(p); status != http.StatusServiceUnavailable || p.Spent() != 4000 {
		t.Errorf("an unknown outcome: status %d, %d spent, want 503 and that it counts as spent", status, p.Spent())
	}
	shop.wantCalls(payerFrom(t, fileStore(t, folder)), 1)
	shop.wantTypes("voucher voucher")
	shop.wantSums(4000, channelDeposit)
	shop.fail(fault{before: refuseWith(http.StatusForbidden)})
	if status := shop.call(p); status != http.StatusForbidden || p.Spent() != 4000 {
		t.Errorf("a refused call: status %d, %d spent, want 403 free of charge", status, p.Spent())
	}
}

// TestPayerRefund: what was not charged comes back to the wallet.
func TestPayerRefund(t *testing.T) {
	t.Parallel()
	shop, p := openChannelShop(t), payerFrom(t, &client.MemoryChannels{})
	wallet := shop.ledger.Balance(p.Address())
	shop.wantCalls(p, 3)
	other := shop.offers[1]
	other.Extra = maps.Clone(other.Extra)
	other.Extra["withdrawDelay"] = uint64(90_000)
	shop.offers = slices.Insert(shop.offers, 1, other) // another payment channel comes first
	shop.wantCalls(p, 3)
	if refunded, err := p.Refund(t.Context(), shop.URL, ""); err != nil || refunded != 2*channelDeposit-6000 {
		t.Errorf("refunded %d, %v, want %d", refunded, err, 2*channelDeposit-6000)
	}
	if got := shop.ledger.Balance(p.Address()); got != wallet-6000 {
		t.Errorf("the wallet has %d, want 6000 less than %d", got, wallet)
	}
	shop.fail(fault{before: refuseWith(http.StatusTooManyRequests)})
	if refunded, err := p.Refund(t.Context(), shop.URL, ""); err == nil || refunded != 0 {
		t.Errorf("a refused refund: %d, %v, want an error", refunded, err)
	}
	p.Channels = nil
	if _, err := p.Refund(t.Context(), shop.URL, ""); err == nil {
		t.Error("a refund without payment channels succeeds")
	}
	shop.offers = []x402.PaymentRequirements{shop.offers[0]}
	if _, err := payerFrom(t, &client.MemoryChannels{}).Refund(t.Context(), shop.URL, ""); err == nil {
		t.Error("a refund by a server without payment channels succeeds")
	}
}

// TestPayerStoresPaymentChannels: by default in the user's configuration.
func TestPayerStoresPaymentChannels(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
	t.Setenv("AppData", filepath.Join(home, "config"))
	shop, p := openChannelShop(t), payerFrom(t, nil)
	shop.wantCalls(p, 2)
	shop.wantTypes("deposit voucher")
	folder, err := os.UserConfigDir()
	testkit.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(folder, "parley", "payment-channels", "0x*.json"))
	if err != nil || len(files) != 1 {
		t.Errorf("the stored payment channels are %v, %v, want one", files, err)
	}
}
