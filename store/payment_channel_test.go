package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/parley-chat/parley/store"
)

// TestPaymentChannelIsReservedOnce: of two deposits or refunds that have read the same open payment channel, the first reserves it.
func TestPaymentChannelIsReservedOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	begin := map[string]func(channel *store.PaymentChannel) error{
		"deposit": func(channel *store.PaymentChannel) error {
			return g.BeginDeposit(t.Context(), channel, beginning(channel.Payer, g.agents[0]), time.Minute, nil)
		},
		"refund": func(channel *store.PaymentChannel) error {
			_, err := g.BeginRefund(t.Context(), channel, voucherPrice, time.Minute, 0)
			return err
		},
	}
	number := 0
	for first := range begin {
		for second := range begin {
			number++
			id, payer := g.openChannel(number, 3)
			channel, err := g.PaymentChannel(t.Context(), id, payer)
			if err := errors.Join(err, begin[first](channel)); err != nil {
				t.Fatalf("the %s: %v", first, err)
			}
			if err := begin[second](channel); !errors.Is(err, store.ErrStalePayment) && !errors.Is(err, store.ErrVoucherMismatch) {
				t.Errorf("a %s while a %s has the payment channel: %v, want a refusal", second, first, err)
			}
		}
	}
}
