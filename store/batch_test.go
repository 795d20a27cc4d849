package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/store"
)

func beginning(payer string, agent uuid.UUID) *store.Payment {
	hash := sha256.Sum256([]byte("x"))
	return &store.Payment{
		ID: uuid.Must(uuid.NewV7()), X402Version: 2, Scheme: "exact", Network: "eip155:84532", Asset: "0xa", Payer: payer, Nonce: "0x" + uuid.NewString(), PayTo: "0xd",
		Amount: 7, ValidBefore: time.Now().Add(time.Hour), Operation: "send", AgentID: &agent, Fingerprint: hash[:], SignatureHash: hash[:],
		Payload: []byte("{}"), Request: []byte("{}"),
	}
}

func deliveryOf(payment *store.Payment) store.Delivery {
	return store.Delivery{Payment: payment.ID, Fingerprint: payment.Fingerprint, Transaction: "0xf", Response: []byte("sealed")}
}

// deliver sends the messages and closes the payment as the payment engine does: a single message, or none, in a batch if it can.
func (g *ground) deliver(ctx context.Context, payment *store.Payment, messages ...store.OutgoingMessage) error {
	err := store.ErrNotBatched
	switch len(messages) {
	case 0:
		err = g.PaymentDelivered(ctx, deliveryOf(payment))
	case 1:
		to := messages[0].To
		if messages[0].Kind == store.KindPrivate {
			var err error
			if to, err = g.PrivateChat(ctx, messages[0].Sender, to); err != nil {
				return err
			}
		}
		if to != uuid.Nil {
			err = g.SendDelivered(messages[0], to, deliveryOf(payment))
		}
	}
	if !errors.Is(err, store.ErrNotBatched) {
		return err
	}
	return g.Transaction(ctx, func(tx *store.Store) error {
		for _, message := range messages {
			if _, err := tx.SendMessage(ctx, message); err != nil {
				return err
			}
		}
		return tx.PaymentDelivered(ctx, deliveryOf(payment))
	})
}

// TestBatches lets many calls share statements while some of them fail in every way there is. Each gets what it would have
// got alone, and what is in the database is what the calls were told.
func TestBatches(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	stranger, blocked := agent(t, g.Store, "stranger"), agent(t, g.Store, "blocked")
	if err := g.BlockAgent(ctx, g.agents[0], blocked); err != nil {
		t.Fatal(err)
	}
	used := beginning("0xused", g.agents[0])
	if err := errors.Join(g.BeginSettlement(ctx, used, time.Minute), g.PaymentDelivered(ctx, deliveryOf(used))); err != nil {
		t.Fatal(err)
	}
	count := func(what string) (n int64) {
		g.query(func(c *pgx.Conn) error { return c.QueryRow(ctx, what).Scan(&n) })
		return n
	}
	const messages, payments = `SELECT count(*) FROM messages`, `SELECT count(*) FROM payments WHERE state = 'delivered'`
	messagesBefore, paymentsBefore := count(messages), count(payments)
	newcomers := make(chan uuid.UUID, 150) // more than will be wanted
	for i := range cap(newcomers) {
		newcomers <- agent(t, g.Store, fmt.Sprintf("newcomer_%d", i))
	}
	giveUp := errors.New("give up")
	var mu sync.Mutex
	var sent, paid int64
	var calls sync.WaitGroup
	for i := range 24 {
		calls.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // small
			for range 40 {
				from := g.agents[random.IntN(4)]
				payment := beginning(fmt.Sprintf("0x%d", i), from)
				where := g.conversations[random.IntN(len(g.conversations))]
				writer := g.members[where][random.IntN(len(g.members[where]))]
				message := func() store.OutgoingMessage {
					message, err := g.OutgoingTo(ctx, where, writer, uuid.Must(uuid.NewV7()), "text")
					if err != nil {
						t.Error(err)
					}
					return message
				}
				messages := []store.OutgoingMessage{message()}
				var want error
				switch random.IntN(12) {
				case 0: // delivered before
					again := *used
					payment, want = &again, store.ErrStalePayment
				case 1: // in the ledger under another id
					payment.Payer, payment.Nonce, want = used.Payer, used.Nonce, store.ErrStalePayment
				case 2:
					want = giveUp
				case 3:
					messages[0], want = private(blocked, g.agents[0], "hello?"), store.ErrBlocked
				case 4:
					messages[0], want = toGroup(stranger, g.group, "hello?"), store.ErrNotMember
				case 5: // a chat that is not there yet
					messages[0] = private(from, <-newcomers, "hello")
				case 6: // more than one thing, which cannot be shared
					messages = append(messages, messages[0])
					messages[1].ID = uuid.Must(uuid.NewV7())
				case 7: // the payment alone
					messages = nil
				}
				if len(messages) == 1 { // what may be sent is rejected in no dry run
					if err := g.CheckMessage(ctx, messages[0]); errors.Is(want, store.ErrBlocked) || errors.Is(want, store.ErrNotMember) {
						if !errors.Is(err, want) {
							t.Errorf("the check says %v, want %v", err, want)
						}
					} else if err != nil {
						t.Errorf("check: %v", err)
					}
				}
				if err := g.BeginSettlement(ctx, payment, time.Minute); err != nil && !errors.Is(err, store.ErrStalePayment) {
					t.Errorf("begin: %v", err)
				}
				var err error
				if errors.Is(want, giveUp) {
					err = g.Transaction(ctx, func(tx *store.Store) error {
						if _, err := tx.SendMessage(ctx, messages[0]); err != nil {
							return err
						}
						return giveUp
					})
				} else {
					err = g.deliver(ctx, payment, messages...)
				}
				if !errors.Is(err, want) || (want == nil && err != nil) {
					t.Errorf("got %v, want %v", err, want)
				}
				if err == nil {
					mu.Lock()
					sent, paid = sent+int64(len(messages)), paid+1
					mu.Unlock()
				}
			}
		})
	}
	written := make(chan struct{})
	var holders sync.WaitGroup
	holders.Go(func() { // as somebody who leaves one conversation and writes to another
		for n := 0; ; n++ {
			select {
			case <-written:
				return
			default:
			}
			err := g.Transaction(ctx, func(tx *store.Store) error {
				err := tx.LockConversation(ctx, g.conversations[n%len(g.conversations)])
				time.Sleep(time.Millisecond)
				return errors.Join(err, tx.LockConversation(ctx, g.conversations[(n*5+3)%len(g.conversations)]))
			})
			if err != nil {
				t.Errorf("hold two conversations: %v", err)
			}
		}
	})
	calls.Wait()
	close(written)
	holders.Wait()
	if got := count(messages) - messagesBefore; got != sent {
		t.Errorf("%d messages are there, %d were sent", got, sent)
	}
	if got := count(payments) - paymentsBefore; got != paid {
		t.Errorf("%d payments are there, %d were made", got, paid)
	}
	if n := count(`SELECT count(*) FROM conversations c WHERE last_number <> (SELECT count(*) FROM messages m WHERE m.conversation_id = c.id)
		OR last_number <> coalesce((SELECT max(number) FROM messages m WHERE m.conversation_id = c.id), 0)`); n != 0 {
		t.Errorf("%d conversations count their messages wrongly", n)
	}
	g.checkCounters("all of this")
}

// TestBatchDeliversAPaymentOnce: many requests redeem one payment at the same moment. One of them has its effect, whether it sends
// a message or writes nothing, and the others are told that the payment has changed.
func TestBatchDeliversAPaymentOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	deliver := func(payment *store.Payment, text string) error {
		if text == "" {
			return g.deliver(ctx, payment)
		}
		return g.deliver(ctx, payment, private(g.agents[0], g.agents[1], text))
	}
	done := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 { // who keep batches under way, so that the redeeming requests gather
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				payment := beginning(fmt.Sprintf("0xother%d", i), g.agents[0])
				if err := errors.Join(g.BeginSettlement(ctx, payment, time.Minute), deliver(payment, []string{"", "other"}[n%2])); err != nil {
					t.Errorf("another payment: %v", err)
				}
			}
		})
	}
	for round := range 20 {
		payment := beginning(fmt.Sprintf("0xredeemed%d", round), g.agents[0])
		err := errors.Join(g.BeginSettlement(ctx, payment, time.Minute), g.PaymentUndeliverable(ctx, payment.ID, "0xf", "not_member"))
		if err != nil {
			t.Fatal(err)
		}
		text := []string{"", fmt.Sprintf("redeemed %d", round)}[round%2]
		var delivered atomic.Int64
		var calls sync.WaitGroup
		for range 24 {
			calls.Go(func() {
				switch err := deliver(payment, text); {
				case err == nil:
					delivered.Add(1)
				case !errors.Is(err, store.ErrStalePayment):
					t.Errorf("round %d: %v, want ErrStalePayment", round, err)
				}
			})
		}
		calls.Wait()
		var messages int
		g.query(func(c *pgx.Conn) error {
			return c.QueryRow(ctx, `SELECT count(*) FROM messages WHERE content = $1`, text).Scan(&messages)
		})
		if delivered.Load() != 1 || messages != round%2 {
			t.Errorf("round %d: delivered %d times with %d messages, want once with %d", round, delivered.Load(), messages, round%2)
		}
	}
	close(done)
	others.Wait()
}

// TestMarkedWithThePayment: on a store without transaction a page is marked as read when its payment is closed, not before,
// and not if the payment was closed already.
func TestMarkedWithThePayment(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx, writer, reader := t.Context(), g.agents[0], g.agents[1]
	for range 3 {
		if _, err := g.SendMessage(ctx, store.OutgoingMessage{Kind: store.KindPrivate, To: reader, Sender: writer, ID: uuid.Must(uuid.NewV7()), Content: "read me"}); err != nil {
			t.Fatal(err)
		}
	}
	chat, err := g.PrivateChat(ctx, writer, reader)
	if err != nil {
		t.Fatal(err)
	}
	start, err := g.ConversationView(ctx, store.KindPrivate, chat, reader)
	if err != nil {
		t.Fatal(err)
	}
	first := start.ReadNumber
	marker := func(when string, want int64) {
		t.Helper()
		view, err := g.ConversationView(ctx, store.KindPrivate, chat, reader)
		if err != nil || view.ReadNumber != want {
			t.Errorf("%s the marker is at %d (%v), want %d", when, view.ReadNumber, err, want)
		}
	}
	payment := beginning("0xreader", reader)
	if err := g.BeginSettlement(ctx, payment, time.Minute); err != nil {
		t.Fatal(err)
	}
	page := g.WithoutTransaction()
	if err := page.MarkRead(ctx, chat, reader, first+1); err != nil {
		t.Fatal(err)
	}
	marker("before the payment is closed", first)
	if err := page.PaymentDelivered(ctx, deliveryOf(payment)); err != nil {
		t.Fatal(err)
	}
	marker("with the payment", first+1)
	again := g.WithoutTransaction()
	if err := again.MarkRead(ctx, chat, reader, first+2); err != nil {
		t.Fatal(err)
	}
	if err := again.PaymentDelivered(ctx, deliveryOf(payment)); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("a closed payment is closed again: %v, want ErrStalePayment", err)
	}
	marker("after the closed payment was closed again", first+1)
}
