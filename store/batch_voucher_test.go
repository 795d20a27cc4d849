package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

const voucherPrice = 7

// openChannel inserts a payment channel with room for n calls.
func (g *ground) openChannel(i, n int) (id, payer string) {
	g.t.Helper()
	id, payer = fmt.Sprintf("0x%064x", i), fmt.Sprintf("0x%040x", i)
	g.query(func(c *pgx.Conn) error {
		_, err := c.Exec(g.t.Context(),
			`INSERT INTO payment_channels (id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer, withdraw_delay, salt,
			charged, signed_max, signature, balance, claimed, withdraw_requested_at, refund_nonce, synced_at, state, used_at, created_at)
			VALUES ($1, $2, $2, 'eip155:84532', '0xa', '0xd', '0xe', 86400, $1, 0, 0, '', $3, 0, 0, 3, now(), 'open', now(), now())`, id, payer,
			n*voucherPrice)
		return err
	})
	return id, payer
}

// chargeOf is the charge of the voucher for a cumulative amount.
func chargeOf(channel, payer string, cumulative int64, agent uuid.UUID) *store.VoucherCharge {
	payment := beginning(payer, agent)
	payment.Scheme, payment.Nonce, payment.Payload, payment.Request = "batch-settlement", fmt.Sprintf("%s:%d", channel, cumulative), nil, nil
	payment.PaymentChannelID, payment.CumulativeAmount, payment.Response = &channel, &cumulative, []byte("stored")
	return &store.VoucherCharge{
		Voucher: store.Voucher{Channel: channel, Payer: payer, Price: voucherPrice, Max: cumulative, MaxUnclaimed: 1 << 40,
			Signature: fmt.Sprint("signature ", cumulative)},
		Payment: payment,
	}
}

// charge makes the effect and charges the voucher as the payment engine does.
func (g *ground) charge(ctx context.Context, s *store.Store, charge *store.VoucherCharge, messages ...store.OutgoingMessage) error {
	for {
		if err := commit(ctx, s, sending(messages...), store.Closing{Charge: charge, Encode: encoded}); !store.Deadlocked(err) {
			return err
		}
	}
}

// chargeAny makes a random call with the next voucher of a payment channel, on one of two servers. Others may be faster.
func (c *callers) chargeAny(random *rand.Rand, s *store.Store, channel, payer string) (paid, sent int64) {
	known, err := s.PaymentChannel(c.t.Context(), channel, payer)
	if err != nil {
		c.t.Error(err)
		return 0, 0
	}
	from := c.agents[random.IntN(4)]
	where := c.conversations[random.IntN(len(c.conversations))]
	out, err := s.OutgoingTo(c.t.Context(), where, c.members[where][random.IntN(len(c.members[where]))], uuid.Must(uuid.NewV7()), "text")
	if err != nil {
		c.t.Error(err)
	}
	charge, messages, want := chargeOf(channel, payer, known.Charged+voucherPrice, from), []store.OutgoingMessage{out}, error(nil)
	switch random.IntN(8) {
	case 0:
		messages[0], want = private(c.blocked, c.agents[0], "hello?"), store.ErrBlocked
	case 1:
		messages[0], want = toGroup(c.stranger, c.group, "hello?"), store.ErrNotMember
	case 2: // a chat that is not there yet
		messages[0] = private(from, <-c.newcomers, "hello")
	case 3: // an amount that never fits
		charge, want = chargeOf(channel, payer, known.Charged+voucherPrice+1, from), store.ErrVoucherMismatch
	case 4: // another payment has this identifier
		charge.Payment.AgentID, charge.Payment.PaymentIdentifier, want = &c.agents[0], &usedIdentifier, store.ErrStalePayment
	case 5, 6:
		messages = nil
	}
	switch err := c.charge(c.t.Context(), s, charge, messages...); {
	case errors.Is(err, store.ErrVoucherMismatch): // another call was faster
		return 0, 0
	case !errors.Is(err, want):
		c.t.Errorf("a call returns %v, want %v", err, want)
	case err == nil && charge.Channel.RefundNonce != 3:
		c.t.Errorf("a call returns the payment channel %+v", charge.Channel)
	case err == nil && messages != nil:
		return 1, 1
	case err == nil:
		return 1, 0
	}
	return 0, 0
}

var usedIdentifier = strings.Repeat("f", 64)

// TestVoucherBatches lets many calls on many payment channels share statements, on two servers, while some fail in every way
// there is. What the payment channels were charged is what was delivered.
func TestVoucherBatches(t *testing.T) {
	t.Parallel()
	c := newCallers(t)
	other := openStore(t, c.connection.Config().ConnString())
	first, payer := c.openChannel(99, 1)
	identified := chargeOf(first, payer, voucherPrice, c.agents[0])
	identified.Payment.PaymentIdentifier = &usedIdentifier
	testkit.NoError(t, c.charge(t.Context(), c.Store, identified))
	const messages, payments = `SELECT count(*) FROM messages`, `SELECT count(*) FROM payments WHERE state = 'delivered'`
	messagesBefore, paymentsBefore := c.count(messages), c.count(payments)
	var sent, paid atomic.Int64
	var calls, lockers sync.WaitGroup
	for i := range 24 { // two on each payment channel, one on each server
		channel, payer := fmt.Sprintf("0x%064x", i/2), fmt.Sprintf("0x%040x", i/2)
		if i%2 == 0 {
			channel, payer = c.openChannel(i/2, 1000)
		}
		calls.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // small
			for range 25 {
				p, m := c.chargeAny(random, []*store.Store{c.Store, other}[i%2], channel, payer)
				paid.Add(p)
				sent.Add(m)
			}
		})
	}
	written := make(chan struct{})
	lockers.Go(func() { until(written, c.lockBoth) })
	calls.Wait()
	close(written)
	lockers.Wait()
	if got := c.count(messages) - messagesBefore; got != sent.Load() {
		t.Errorf("%d messages are there, %d were sent", got, sent.Load())
	}
	if got := c.count(payments) - paymentsBefore; got != paid.Load() || got == 0 {
		t.Errorf("%d payments are there, %d were made", got, paid.Load())
	}
	c.checkCharged()
	c.checkCounters("all of this")
}

// checkCharged compares each payment channel with its payments.
func (g *ground) checkCharged() {
	g.t.Helper()
	var wrong int
	g.query(func(c *pgx.Conn) error {
		return c.QueryRow(g.t.Context(), `SELECT count(*) FROM payment_channels c CROSS JOIN LATERAL (
			SELECT coalesce(sum(amount), 0) AS sum, coalesce(max(cumulative_amount), 0) AS newest FROM payments p
			WHERE p.payment_channel_id = c.id AND p.payer = c.payer AND p.state = 'delivered' AND p.nonce IS NULL
		) p WHERE c.charged <> p.sum OR c.charged <> p.newest OR c.signature <> CASE WHEN p.newest > 0 THEN 'signature ' || p.newest ELSE ''
		END`).Scan(&wrong)
	})
	if wrong != 0 {
		g.t.Errorf("%d payment channels were charged something else than their payments", wrong)
	}
}

// TestVoucherFits: a voucher is charged only if its payment channel is as it must be, and then nothing else is written either.
func TestVoucherFits(t *testing.T) {
	t.Parallel()
	c := newCallers(t)
	messages := c.count(`SELECT count(*) FROM messages`)
	no := store.ErrVoucherMismatch
	for i, test := range []struct {
		name, channel string
		charged       int64
		want          error
	}{
		{"a withdrawal is known", "withdraw_requested_at = 1", 0, no},
		{"a refund is being settled", "state = 'refunding', refund_amount = 1, lease_until = now()", 0, no},
		{"the balance does not cover it", "balance = 6", 0, no},
		{"too much would be unclaimed", "charged = 14, signed_max = 14, unclaimed_since = now()", 14, no},
		{"it skips the next voucher", "charged = 0", 7, no},
		{"it is as it must be", "charged = 0", 0, nil},
	} {
		channel, payer := c.openChannel(i, 100)
		c.query(func(conn *pgx.Conn) error {
			_, err := conn.Exec(t.Context(), `UPDATE payment_channels SET `+test.channel+` WHERE id = $1`, channel)
			return err
		})
		charge := chargeOf(channel, payer, test.charged+voucherPrice, c.agents[0])
		charge.Voucher.MaxUnclaimed = 2 * voucherPrice
		err := c.charge(t.Context(), c.Store, charge, toGroup(c.agents[0], c.group, "text"))
		if !errors.Is(err, test.want) {
			t.Errorf("%s: the voucher returns %v, want %v", test.name, err, test.want)
		}
	}
	if got := c.count(`SELECT count(*) FROM messages`) - messages; got != 1 {
		t.Errorf("%d messages were sent, want 1", got)
	}
}

// TestRefusedInAVoucherBatch: in one statement, a call that is refused changes nothing, and the others are made.
func TestRefusedInAVoucherBatch(t *testing.T) {
	t.Parallel()
	c := newCallers(t)
	var messages []store.OutgoingMessage
	var conversations []uuid.UUID
	var charges []*store.VoucherCharge
	var want []error
	call := func(result error, sender uuid.UUID, channel int, cumulative int64) {
		messages, conversations = append(messages, toGroup(sender, c.group, "text")), append(conversations, c.group)
		charges = append(charges, chargeOf(fmt.Sprintf("0x%064x", channel), fmt.Sprintf("0x%040x", channel), cumulative, sender))
		want = append(want, result)
	}
	for i := range 7 {
		c.openChannel(i, 1)
	}
	call(nil, c.agents[0], 0, voucherPrice)
	call(store.ErrNotMember, c.stranger, 1, voucherPrice)     // not a member
	call(store.ErrNotBatched, c.agents[1], 2, voucherPrice+1) // a wrong amount
	call(store.ErrNotBatched, c.agents[1], 3, 2*voucherPrice) // not the next voucher, and above the balance
	call(store.ErrNotBatched, c.agents[2], 8, voucherPrice)   // an unknown payment channel
	call(nil, c.agents[1], 4, voucherPrice)                   //
	call(store.ErrNotBatched, c.agents[2], 4, voucherPrice)   // the same voucher
	call(store.ErrNotBatched, c.agents[2], 4, 2*voucherPrice) // the next voucher of the same payment channel
	call(nil, c.agents[0], 5, voucherPrice)                   //
	charges[8].Payment.PaymentIdentifier = &usedIdentifier
	call(store.ErrNotBatched, c.agents[0], 6, voucherPrice) // the same payment identifier
	charges[9].Payment.PaymentIdentifier = &usedIdentifier
	before := c.count(`SELECT last_number FROM conversations WHERE id = '` + c.group.String() + `'`)
	for i, err := range c.SendChargedAtOnce(messages, conversations, charges) {
		if !errors.Is(err, want[i]) {
			t.Errorf("call %d returns %v, want %v", i, err, want[i])
		}
	}
	if sent := c.count(`SELECT last_number FROM conversations WHERE id = '`+c.group.String()+`'`) - before; sent != 3 {
		t.Errorf("%d messages, want 3", sent)
	}
	c.checkCharged()
	c.checkCounters("the batch")
}

// TestChargedPage: a page of messages is marked as read with the charge, and not if the voucher does not fit.
func TestChargedPage(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx, reader := t.Context(), g.agents[1]
	for range 3 {
		if _, err := alone(ctx, g.Store, func(tx *store.Tx) (*store.Sent, error) {
			return tx.SendMessage(ctx, private(g.agents[0], reader, "read me"))
		}); err != nil {
			t.Fatal(err)
		}
	}
	chat, err := g.PrivateChat(ctx, g.agents[0], reader)
	testkit.NoError(t, err)
	view := func() *store.ConversationView {
		view, err := g.ConversationView(ctx, store.KindPrivate, chat, reader)
		testkit.NoError(t, err)
		return view
	}
	first := view().ReadNumber
	channel, payer := g.openChannel(1, 10)
	for _, test := range []struct {
		cumulative, mark, marked int64
		want                     error
	}{{2 * voucherPrice, 2, 0, store.ErrVoucherMismatch}, {voucherPrice, 1, 1, nil}, {voucherPrice, 2, 1, store.ErrVoucherMismatch},
		{2 * voucherPrice, 2, 2, nil}} {
		page := sharing(func(ctx context.Context, do store.Actions) error {
			return do.MarkRead(ctx, reader, store.ReadRange{Conversation: chat, Oldest: 1, Newest: first + test.mark})
		})
		closing := store.Closing{Charge: chargeOf(channel, payer, test.cumulative, reader), Encode: encoded}
		if err := commit(ctx, g.Store, page, closing); !errors.Is(err, test.want) {
			t.Errorf("a voucher for %d returns %v, want %v", test.cumulative, err, test.want)
		}
		if marked := view().ReadNumber - first; marked != test.marked {
			t.Errorf("after a voucher for %d, %d messages are marked as read, want %d", test.cumulative, marked, test.marked)
		}
	}
	g.checkCharged()
}

// TestUsedNameMakesNoEffect: the effect of a call whose payment identifier or idempotency key is in the ledger is not tried, since that
// costs nothing.
func TestUsedNameMakesNoEffect(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for i, name := range []func(payment *store.Payment){
		func(payment *store.Payment) { payment.PaymentIdentifier = &usedIdentifier },
		func(payment *store.Payment) { payment.IdempotencyKey = &usedIdentifier },
	} {
		channel, payer := g.openChannel(i, 2)
		charge := func(cumulative int64) store.Closing {
			charge := chargeOf(channel, payer, cumulative, g.agents[0])
			name(charge.Payment)
			return store.Closing{Charge: charge, Encode: encoded}
		}
		message := func() store.OutgoingMessage { return toGroup(g.agents[0], g.group, "text") }
		testkit.NoError(t, commit(t.Context(), g.Store, sending(message()), charge(voucherPrice)))
		for path, work := range map[string]store.Work{"shared": sending(message()), "alone": sendingAlone(message())} {
			work.Turn = func(context.Context) (func(), error) { return nil, errors.New("the call has a transaction") }
			if err := commit(t.Context(), g.Store, work, charge(2*voucherPrice)); !errors.Is(err, store.ErrStalePayment) {
				t.Errorf("name %d, %s: %v, want ErrStalePayment", i, path, err)
			}
		}
	}
}
