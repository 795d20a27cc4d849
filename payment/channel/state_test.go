package channel

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestMisfit: why a voucher cannot be charged, as far as that needs neither the database nor the chain. Every case begins with a voucher
// for 3000, a price of 1000, and a payment channel that was charged 2000 and has 10,000.
func TestMisfit(t *testing.T) {
	t.Parallel()
	now := time.Now()
	type change func(v *voucher, channel *store.PaymentChannel)
	for _, test := range []struct {
		name   string
		change change
		reason string // of the 402; "" if the voucher fits
		stale  bool   // the caller should look again
	}{
		{name: "fits", change: func(*voucher, *store.PaymentChannel) {}},
		{name: "a deposit is being settled", change: func(_ *voucher, c *store.PaymentChannel) { c.State = store.PaymentChannelDepositing },
			stale: true},
		{name: "a refund is being settled", change: func(_ *voucher, c *store.PaymentChannel) { c.State = store.PaymentChannelRefunding },
			stale: true},
		{name: "was charged before", change: func(_ *voucher, c *store.PaymentChannel) { c.Charged = 3000 },
			reason: x402.ReasonBatchCumulativeMismatch},
		{name: "skips an amount", change: func(_ *voucher, c *store.PaymentChannel) { c.Charged = 1000 },
			reason: x402.ReasonBatchCumulativeMismatch},
		{name: "exceeds the balance", change: func(_ *voucher, c *store.PaymentChannel) { c.Balance = 2999 },
			reason: x402.ReasonBatchExceedsBalance},
		{name: "a withdrawal is under way", change: func(_ *voucher, c *store.PaymentChannel) { c.WithdrawRequestedAt = 1 },
			reason: x402.ReasonBatchExceedsBalance},
		{name: "too much is unclaimed", change: func(v *voucher, _ *store.PaymentChannel) { v.MaxUnclaimed = 2999 },
			reason: x402.ReasonBatchChannelBusy},
		{name: "as much as may be unclaimed", change: func(v *voucher, _ *store.PaymentChannel) { v.MaxUnclaimed = 3000 }},
		{name: "a part of it is claimed", change: func(v *voucher, c *store.PaymentChannel) { v.MaxUnclaimed, c.Claimed = 2999, 1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			engine := payment.New(payment.Config{}, nil, nil, nil, slog.New(slog.DiscardHandler))
			scheme := &Scheme{Config: Config{WithdrawDelay: time.Hour}, engine: engine, started: now.Add(-time.Hour),
				lost: payment.NewRecent[string, struct{}](maxLost), behind: payment.NewRecent[string, bool](maxLost),
				generations: payment.NewRecent[string, uint64](maxLost)}
			operation := &payment.Operation{ID: "editAgent", Price: 1000, Extensions: map[string]jsontext.Value{}}
			testkit.NoError(t, engine.Offer([]*payment.Operation{operation}, scheme))
			v := &voucher{Scheme: scheme, a: &payment.Attempt{Operation: operation}, payload: &x402.BatchPayment{},
				of: x402.BatchChecked{Type: x402.BatchVoucher, Max: 3000}}
			channel := &store.PaymentChannel{State: store.PaymentChannelOpen, Charged: 2000, Balance: 10_000, SyncedAt: now}
			test.change(v, channel)
			err := v.mismatch(t.Context(), channel)
			refused, isRefused := errors.AsType[*payment.Error](err)
			switch {
			case test.stale != errors.Is(err, store.ErrStalePayment), !test.stale && isRefused != (test.reason != ""):
				t.Errorf("returns %v, want a 402 %q, stale %v", err, test.reason, test.stale)
			case isRefused && !strings.Contains(refused.Required.Error, test.reason):
				t.Errorf("is refused because of %q, want %q", refused.Required.Error, test.reason)
			}
		})
	}
}

// TestMayBePublic: a voucher that was claimed, or that a claim under way can have, stands on the chain for everybody.
func TestMayBePublic(t *testing.T) {
	t.Parallel()
	soon := time.Now()
	for _, test := range []struct {
		name    string
		max     uint64
		channel store.PaymentChannel
		want    bool
	}{
		{"nothing is claimed", 3000, store.PaymentChannel{SignedMax: 3000}, false},
		{"claimed", 3000, store.PaymentChannel{SignedMax: 4000, Claimed: 3000}, true},
		{"newer than what is claimed", 3001, store.PaymentChannel{SignedMax: 4000, Claimed: 3000}, false},
		{"a claim is under way", 4000, store.PaymentChannel{SignedMax: 4000, Claimed: 3000, ClaimAfter: &soon}, true},
		{"newer than a claim under way", 4001, store.PaymentChannel{SignedMax: 4000, ClaimAfter: &soon}, false},
	} {
		if got := (&voucher{of: x402.BatchChecked{Max: test.max}}).mayBePublic(&test.channel); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestJudge: a deposit arrived if its authorization paid its amount into a payment channel, whoever brought it to the chain.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		used x402.AuthorizationState
		ours bool
	}{
		"by the collector":  {x402.AuthorizationState{To: strings.ToLower(x402.DepositCollectorContract), Amount: 5000}, true},
		"by the contract":   {x402.AuthorizationState{To: x402.BatchSettlementContract, Amount: 5000}, true},
		"another amount":    {x402.AuthorizationState{To: x402.BatchSettlementContract, Amount: 4999}, false},
		"to somebody":       {x402.AuthorizationState{To: "0xsomebody", Amount: 5000}, false},
		"of another amount": {x402.AuthorizationState{To: "0xsomebody", Amount: 1}, false},
	} {
		d := &deposit{&voucher{of: x402.BatchChecked{Deposit: 5000}}}
		if why := d.Judge(test.used, nil); (why == "") != test.ours {
			t.Errorf("%s: %q, want ours %v", name, why, test.ours)
		}
	}
}

// TestGenerationOf: a payment channel is of a generation by its delay, as far as the longest delay allows.
func TestGenerationOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ ours, theirs, want, last uint64 }{
		{900, 900, 0, 63},
		{900, 901, 1, 63},
		{900, 963, 63, 63},
		{900, 964, 0, 63},
		{901, 900, 0, 63},
		{x402.MaxWithdrawDelay - 1, x402.MaxWithdrawDelay, 1, 1},
		{x402.MaxWithdrawDelay, x402.MaxWithdrawDelay + 1, 0, 0},
	} {
		c := &Scheme{terms: x402.ChannelTerms{WithdrawDelay: row.ours}}
		if got, last := c.generationOf(row.theirs), c.lastGeneration(); got != row.want || last != row.last {
			t.Errorf("delay %d is generation %d of %d, want %d of %d", row.theirs, got, last, row.want, row.last)
		}
	}
}
