package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

func TestPaymentChannel(t *testing.T) {
	t.Parallel()
	shop, store := openChannelShop(t), &client.MemoryChannels{}
	channels := channelPayer(t, store)
	shop.wantBuys(channels, 25)
	shop.wantTypes("deposit" + strings.Repeat(" voucher", 9) + " deposit" + strings.Repeat(" voucher", 9) + " deposit" +
		strings.Repeat(" voucher", 4))
	shop.wantSums(25_000, 30_000)
	shop.wantBuys(channelPayer(t, store), 5) // the store is the memory
	shop.wantTypes(strings.TrimSpace(strings.Repeat(" voucher", 5)))
	if price, err := channels.Price(shop.ask()); err != nil || price != channelPrice {
		t.Errorf("the price is %d, %v", price, err)
	}
}

func TestPaymentChannelSalts(t *testing.T) {
	t.Parallel()
	shop, store := openChannelShop(t), &client.MemoryChannels{}
	first, second := channelPayer(t, store), channelPayer(t, store)
	second.Salt = "0x" + strings.Repeat("0", 63) + "1"
	shop.wantBuys(first, 2)
	shop.wantBuys(second, 2)
	shop.wantTypes("deposit voucher deposit voucher")
	shop.wantSums(4000, 2*channelDeposit)
}

// TestPaymentChannelLosesResponses: a lost response costs its price once, and the channel goes on in step.
func TestPaymentChannelLosesResponses(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	channels := channelPayer(t, fileStore(t, t.TempDir()))
	shop.wantBuys(channels, 1)
	shop.fail(fault{after: cutOff})
	if _, charged, err := shop.buy(channels); err == nil || charged != channelPrice {
		t.Errorf("a call whose response is lost: %v, charged %d, want an error and the price", err, charged)
	}
	shop.wantBuys(channels, 1) // the same voucher returns the stored response
	shop.wantSums(2000, channelDeposit)
	shop.fail(fault{before: cutOff})
	if _, _, err := shop.buy(channels); err == nil {
		t.Error("a call that is cut off has no error")
	}
	shop.wantBuys(channels, 1)
	shop.wantSums(3000, channelDeposit)
	shop.fail(fault{after: refuseWith(503)})
	if status, charged, err := shop.buy(channels); status != 503 || charged != channelPrice || err != nil {
		t.Errorf("a call with an unknown outcome: status %d, charged %d, %v", status, charged, err)
	}
	shop.mu.Lock()
	clear(shop.answered) // as if another request followed
	shop.mu.Unlock()
	shop.wantTypes("deposit voucher voucher voucher voucher voucher")
	shop.wantBuys(channels, 1)
	shop.wantTypes("voucher voucher") // a corrective 402 in between
	shop.wantSums(5000, channelDeposit)
}

// TestPaymentChannelRestarts: a store survives, and without one the server proves the newest voucher.
func TestPaymentChannelRestarts(t *testing.T) {
	t.Parallel()
	shop, folder := openChannelShop(t), t.TempDir()
	for range 4 {
		shop.wantBuys(channelPayer(t, fileStore(t, folder)), 2)
	}
	shop.wantTypes("deposit voucher voucher voucher voucher voucher voucher voucher")
	shop.wantBuys(channelPayer(t, &client.MemoryChannels{}), 1)
	shop.wantTypes("deposit voucher") // the deposit is refused before it moves money
	shop.wantSums(9000, channelDeposit)
	forgetful := channelPayer(t, &client.MemoryChannels{})
	forgetful.Chain = shop.chain()
	shop.wantBuys(forgetful, 2)
	shop.wantTypes("deposit voucher deposit") // and the channel is used up
	shop.wantSums(11_000, 2*channelDeposit)
}

// TestPaymentChannelDoubts: a server gets no voucher for what it cannot prove to be signed.
func TestPaymentChannelDoubts(t *testing.T) {
	t.Parallel()
	foreign, err := x402.NewChannelSigner(x402.NewKeySigner(accountKey(t, 1)), "0x"+strings.Repeat("0", 64), openChannelShop(t).offers[1])
	testkit.NoError(t, err)
	for name, lie := range map[string]func(*x402.ChannelState, *x402.VoucherState){
		"more was charged": func(s *x402.ChannelState, _ *x402.VoucherState) { s.ChargedCumulativeAmount = "9000" },
		"the largest amount was charged": func(s *x402.ChannelState, _ *x402.VoucherState) {
			s.ChargedCumulativeAmount = "9223372036854775807"
		},
		"more than the largest": func(s *x402.ChannelState, _ *x402.VoucherState) {
			s.ChargedCumulativeAmount = "18446744073709551615"
		},
		"the balance is the largest amount": func(s *x402.ChannelState, _ *x402.VoucherState) { s.Balance = "9223372036854775807" },
		"more was charged and signed": func(s *x402.ChannelState, v *x402.VoucherState) {
			s.ChargedCumulativeAmount, v.SignedMaxClaimable = "9000", "9000"
		},
		"another's voucher": func(s *x402.ChannelState, v *x402.VoucherState) {
			payment, err := foreign.Sign(t.Context(), 9000, 0, time.Now())
			if err != nil {
				t.Error(err)
			}
			s.ChargedCumulativeAmount, v.SignedMaxClaimable, v.Signature = "9000", "9000", payment.Payload.Voucher.Signature
		},
		"no voucher":       func(s *x402.ChannelState, v *x402.VoucherState) { s.ChargedCumulativeAmount, v.Signature = "5000", "" },
		"another channel":  func(s *x402.ChannelState, _ *x402.VoucherState) { s.ChannelID = "0x" + strings.Repeat("1", 64) },
		"no number":        func(s *x402.ChannelState, _ *x402.VoucherState) { s.ChargedCumulativeAmount = "much" },
		"below the claims": func(s *x402.ChannelState, _ *x402.VoucherState) { s.TotalClaimed = "9000" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop, store := openChannelShop(t), &client.MemoryChannels{}
			channels := channelPayer(t, store)
			shop.wantBuys(channels, 2)
			shop.fail(fault{lie: lie}, fault{lie: lie}, fault{lie: lie})
			if status, charged, err := shop.buy(channels); status != 402 || charged != 0 || err != nil {
				t.Errorf("the call: status %d, charged %d, %v, want the 402", status, charged, err)
			}
			if shop.highest != 3000 {
				t.Errorf("a voucher for %d was signed, want none above 3000", shop.highest)
			}
			shop.mu.Lock()
			shop.faults = nil
			shop.mu.Unlock()
			shop.wantBuys(channels, 1)
			shop.wantSums(3000, channelDeposit)
		})
	}
}

// TestPaymentChannelRefusals: a refused call is free, and its deposit stays in the channel.
func TestPaymentChannelRefusals(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	channels := channelPayer(t, fileStore(t, t.TempDir()))
	shop.fail(fault{afterDeposit: refuseWith(403)}, fault{before: refuseWith(409)})
	for _, want := range []int{403, 409} {
		if status, charged, err := shop.buy(channels); status != want || charged != 0 || err != nil {
			t.Errorf("a refused call: status %d, charged %d, %v, want %d free of charge", status, charged, err, want)
		}
	}
	shop.wantBuys(channels, 1)
	shop.wantTypes("deposit voucher voucher")
	shop.wantSums(1000, channelDeposit)
}

// TestPaymentChannelLosesDeposits: whatever happens to a deposit, one call deposits once.
func TestPaymentChannelLosesDeposits(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		fault fault
		wait  time.Duration
		types string
	}{
		"it arrived":                        {fault{after: cutOff}, 0, "deposit voucher"},
		"it did not arrive":                 {fault{before: cutOff}, 0, "deposit voucher deposit"},
		"it arrived, long ago":              {fault{after: cutOff}, time.Hour, "deposit voucher"},
		"it did not arrive, and is expired": {fault{before: cutOff}, time.Hour, "deposit voucher deposit"},
		"it was refused":                    {fault{before: refuseWith(403)}, 0, "deposit deposit"},
		"it was refused, and is expired":    {fault{before: refuseWith(403)}, time.Hour, "deposit deposit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop, folder := openChannelShop(t), t.TempDir()
			shop.fail(row.fault)
			_, _, _ = shop.buy(channelPayer(t, fileStore(t, folder)))
			shop.ledger.Advance(row.wait)
			restarted := channelPayer(t, fileStore(t, folder))
			restarted.Now = later(row.wait)
			shop.wantBuys(restarted, 1)
			shop.wantTypes(row.types)
			shop.wantSums(1000, channelDeposit)
			if n := len(shop.deposits); row.wait == 0 && n != 1 {
				t.Errorf("%d deposits were signed, want one that is sent again", n)
			}
			shop.wantBuys(restarted, 9)
			shop.wantSums(10_000, channelDeposit)
		})
	}
}

// TestPaymentChannelStopsDepositing: a server that loses every deposit gets three.
func TestPaymentChannelStopsDepositing(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	channels := channelPayer(t, &client.MemoryChannels{})
	for i := range 5 {
		channels.Now = later(time.Duration(i+1) * time.Hour)
		shop.ledger.Advance(time.Hour)
		if i > 0 {
			shop.fail(fault{before: func(w http.ResponseWriter) bool {
				shop.demand(w, x402.ReasonBatchChannelNotFound, shop.offers)
				return true
			}})
		}
		shop.fail(fault{before: cutOff})
		_, _, err := shop.buy(channels)
		shop.mu.Lock()
		shop.faults = nil
		shop.mu.Unlock()
		if stopped := err != nil && strings.Contains(err.Error(), "Chain"); stopped != (i > 2) {
			t.Errorf("call %d says %v, want an end of the deposits from the fourth on", i+1, err)
		}
	}
	if n := len(shop.deposits); n > 3 {
		t.Errorf("%d deposits were signed, want 3", n)
	}
	channels.Chain = shop.chain()
	channels.Now = later(6 * time.Hour)
	shop.ledger.Advance(time.Hour)
	shop.wantBuys(channels, 1)
}

// TestPaymentChannelWithdrawn: what the server or the payer took out is deposited again.
func TestPaymentChannelWithdrawn(t *testing.T) {
	t.Parallel()
	shop, store := openChannelShop(t), &client.MemoryChannels{}
	channels := channelPayer(t, store)
	shop.wantBuys(channels, 2)
	testkit.NoError(t, shop.ledger.RefundChannel(shop.configOf(), 7500))
	shop.wantBuys(channels, 2)
	shop.wantTypes("deposit voucher voucher deposit voucher")
	shop.wantSums(4000, 2500+channelDeposit)
}

func TestPaymentChannelRefund(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	channels := channelPayer(t, fileStore(t, t.TempDir()))
	shop.wantBuys(channels, 3)
	for _, row := range []struct{ asked, want, left uint64 }{{2000, 2000, 8000}, {0, 5000, 3000}} {
		refunded, response, err := channels.Refund(t.Context(), shop.ask(), row.asked, shop.post)
		if err != nil || response.StatusCode != 200 || refunded != row.want {
			t.Fatalf("the refund of %d is %d, %v", row.asked, refunded, err)
		}
		_ = response.Body.Close()
		shop.wantSums(3000, row.left)
	}
	shop.wantBuys(channels, 2)
	shop.wantTypes("deposit voucher voucher refund refund deposit voucher")
	refunded, response, err := channelPayer(t, &client.MemoryChannels{}).Refund(t.Context(), shop.ask(), 0, shop.post)
	if err != nil || refunded != channelDeposit-2000 { // after a correction
		t.Errorf("the refund without a store is %d, %v", refunded, err)
	}
	_ = response.Body.Close()
}

func TestPaymentChannelLimits(t *testing.T) {
	t.Parallel()
	shop := openChannelShop(t)
	for name, row := range map[string]struct {
		change func(c *client.PaymentChannels, required *x402.PaymentRequired)
		left   uint64
		want   uint64 // deposited; 0 for an error
		limit  bool
	}{
		"as suggested":      {nil, 1_000_000, channelDeposit, false},
		"the payer's":       {func(c *client.PaymentChannels, _ *x402.PaymentRequired) { c.Deposit = 5000 }, 1_000_000, 5000, false},
		"at least the call": {func(c *client.PaymentChannels, _ *x402.PaymentRequired) { c.Deposit = 1 }, 1_000_000, 1000, false},
		"without a suggestion": {func(_ *client.PaymentChannels, r *x402.PaymentRequired) { delete(r.Accepts[1].Extra, "minDeposit") },
			1_000_000, 10_000, false},
		"not more than allowed": {func(c *client.PaymentChannels, _ *x402.PaymentRequired) { c.MaxDeposit = 3000 }, 1_000_000, 3000, false},
		"not more than is left": {nil, 2000, 2000, false},
		"less than the server takes": {func(c *client.PaymentChannels, r *x402.PaymentRequired) {
			r.Accepts[1].Extra["minDeposit"] = "1000000"
		}, 99_999, 0, true},
		"no deposits":  {func(c *client.PaymentChannels, _ *x402.PaymentRequired) { c.MaxDeposit = 0 }, 1_000_000, 0, true},
		"nothing left": {nil, 999, 0, true},
		"exact only":   {func(_ *client.PaymentChannels, r *x402.PaymentRequired) { r.Accepts = r.Accepts[:1] }, 1_000_000, 0, false},
		"a month's delay": {func(_ *client.PaymentChannels, r *x402.PaymentRequired) {
			r.Accepts[1].Extra["withdrawDelay"] = 2_592_000.0
		}, 1_000_000, 0, false},
		"another token": {func(_ *client.PaymentChannels, r *x402.PaymentRequired) { r.Accepts[1].Asset = devnet.Payee }, 1_000_000, 0, false},
		"other networks": {func(c *client.PaymentChannels, _ *x402.PaymentRequired) {
			c.Networks = []x402.Network{{ID: "eip155:1"}}
		}, 1_000_000, 0, false},
		"permit2": {func(_ *client.PaymentChannels, r *x402.PaymentRequired) {
			r.Accepts[1].Extra["assetTransferMethod"] = "permit2"
		}, 1_000_000, 0, false},
	} {
		channels, required := channelPayer(t, &client.MemoryChannels{}), shop.ask()
		if row.change != nil {
			row.change(channels, required)
		}
		var deposited uint64
		response, _, err := channels.Pay(t.Context(), required, row.left, func(_ context.Context, payment string) (*http.Response, error) {
			decoded, err := x402.DecodePayment(payment)
			batch, _ := decoded.(*x402.BatchPayment)
			if err != nil {
				return nil, err
			}
			deposited, _ = x402.AtomicAmount("0." + strings.Repeat("0", 6-len(batch.Payload.Deposit.Amount)) + batch.Payload.Deposit.Amount)
			return nil, errStop
		})
		if response != nil {
			_ = response.Body.Close()
		}
		_, limited := errors.AsType[*client.DepositLimitError](err)
		if row.want > 0 && !errors.Is(err, errStop) || row.want == 0 && limited != row.limit ||
			row.want == 0 && !row.limit && !errors.Is(err, client.ErrNoPaymentChannel) || deposited != row.want {
			t.Errorf("%s: a deposit of %d, %v, want %d", name, deposited, err, row.want)
		}
	}
}

var errStop = errors.New("stop")
