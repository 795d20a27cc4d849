package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
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

// TestPaymentChannelsToClaim: a payment channel is leased to one server, and not if the payer has withdrawn what is not claimed; two
// refunds have a pause.
func TestPaymentChannelsToClaim(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	id, payer := g.openChannel(1, 3)
	withdrawn, _ := g.openChannel(2, 3)
	update := func(statement string, arguments ...any) {
		t.Helper()
		g.query(func(c *pgx.Conn) error {
			_, err := c.Exec(t.Context(), statement, arguments...)
			return err
		})
	}
	update(`UPDATE payment_channels SET charged = 14, signed_max = 14, signature = 'x', unclaimed_since = now()`)
	update(`UPDATE payment_channels SET balance = 7, claimed = 7, unclaimed_since = NULL WHERE id = $1`, withdrawn)
	terms := store.PaymentTerms{Network: "eip155:84532", Asset: "0xa", PayTo: "0xd"}
	for _, want := range []int{1, 0} {
		due, err := g.UnclaimedChannels(t.Context(), terms, "0xe", "", 0, 10, time.Minute)
		if err != nil || len(due) != want || want == 1 && due[0].ID != id {
			t.Errorf("%d payment channels are to be claimed: %+v (%v), want %d", len(due), due, err, want)
		}
	}
	channel, err := g.PaymentChannel(t.Context(), id, payer)
	testkit.NoError(t, err)
	for i, want := range []error{nil, store.ErrVoucherMismatch} {
		begun, err := g.BeginRefund(t.Context(), channel, voucherPrice, time.Minute, time.Minute)
		if !errors.Is(err, want) {
			t.Errorf("refund %d: %v, want %v", i, err, want)
		}
		if err == nil {
			_, err = g.EndRefund(t.Context(), begun, store.OnChain{}, nil)
		}
		if want == nil && err != nil {
			t.Fatal(err)
		}
	}
}

// TestDepositBesideAClaim: while a deposit settles, somebody else claims from its payment channel what this database has not charged.
// The deposit's voucher is then charged no more.
func TestDepositBesideAClaim(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	id, payer := g.openChannel(1, 3)
	channel, err := g.PaymentChannel(t.Context(), id, payer)
	testkit.NoError(t, err)
	payment := beginning(payer, g.agents[0])
	payment.Scheme = "batch-settlement"
	cumulative := int64(voucherPrice)
	payment.PaymentChannelID, payment.CumulativeAmount, payment.DepositAmount = &id, &cumulative, 1
	begun := g.BeginDeposit(t.Context(), channel, payment, time.Minute, nil)
	chain := store.OnChain{Balance: 3 * voucherPrice, Claimed: voucherPrice - 2, RefundNonce: 3}
	_, synced := g.SyncPaymentChannel(t.Context(), channel, chain)
	testkit.NoError(t, errors.Join(begun, synced))
	closing := deliveryOf(payment)
	closing.Deposit = &store.DepositCharge{Voucher: chargeOf(id, payer, cumulative, g.agents[0]).Voucher, Chain: chain}
	if err := commit(t.Context(), g.Store, sending(), closing); !errors.Is(err, store.ErrVoucherMismatch) {
		t.Errorf("the voucher of the deposit: %v, want %v", err, store.ErrVoucherMismatch)
	}
}
