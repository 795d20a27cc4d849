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
	return store.Delivery{Payment: payment.ID, Fingerprint: payment.Fingerprint, Transaction: "0xf", Answer: []byte("sealed")}
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
				send := func(ctx context.Context, tx *store.Store) error {
					_, err := tx.SendAnywhere(ctx, where, writer, uuid.Must(uuid.NewV7()), "text")
					return err
				}
				wrote := int64(1)
				var want, after error
				switch random.IntN(12) {
				case 0: // delivered before
					again := *used
					payment, want = &again, store.ErrPaymentMoved
				case 1: // in the ledger under another id
					payment.Payer, payment.Nonce, want = used.Payer, used.Nonce, store.ErrPaymentMoved
				case 2:
					after, want = giveUp, giveUp
				case 3:
					want = store.ErrBlocked
					send = func(ctx context.Context, tx *store.Store) error {
						_, err := tx.SendPrivateMessage(ctx, blocked, g.agents[0], uuid.Must(uuid.NewV7()), "hello?")
						return err
					}
				case 4:
					want = store.ErrNotMember
					send = func(ctx context.Context, tx *store.Store) error {
						if sent, err := tx.SendGroupMessage(ctx, g.group, stranger, uuid.Must(uuid.NewV7()), "hello?"); sent != nil || err != nil {
							return err
						}
						return store.ErrNotMember
					}
				case 5: // a chat that is not there yet
					other := <-newcomers
					send = func(ctx context.Context, tx *store.Store) error {
						_, err := tx.SendPrivateMessage(ctx, from, other, uuid.Must(uuid.NewV7()), "hello")
						return err
					}
				case 6: // more than one thing, which cannot be shared
					first := send
					wrote, send = 2, func(ctx context.Context, tx *store.Store) error { return errors.Join(first(ctx, tx), first(ctx, tx)) }
				case 7: // the payment alone
					wrote, send = 0, func(context.Context, *store.Store) error { return nil }
				}
				if err := g.BeginSettlement(ctx, payment, time.Minute); err != nil && !errors.Is(err, store.ErrPaymentMoved) {
					t.Errorf("begin: %v", err)
				}
				err := g.BatchedTransaction(ctx, func(tx *store.Store) error {
					if err := send(ctx, tx); err != nil {
						return err
					}
					if after != nil {
						return after
					}
					return tx.PaymentDelivered(ctx, deliveryOf(payment))
				})
				if !errors.Is(err, want) || (want == nil && err != nil) {
					t.Errorf("got %v, want %v", err, want)
				}
				if err == nil {
					mu.Lock()
					sent, paid = sent+wrote, paid+1
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
				err := tx.Hold(ctx, g.conversations[n%len(g.conversations)])
				time.Sleep(time.Millisecond)
				return errors.Join(err, tx.Hold(ctx, g.conversations[(n*5+3)%len(g.conversations)]))
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
// a message or writes nothing, and the others are told that the payment has moved.
func TestBatchDeliversAPaymentOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	deliver := func(payment *store.Payment, text string) error {
		return g.BatchedTransaction(ctx, func(tx *store.Store) error {
			if text != "" {
				if _, err := tx.SendPrivateMessage(ctx, g.agents[0], g.agents[1], uuid.Must(uuid.NewV7()), text); err != nil {
					return err
				}
			}
			return tx.PaymentDelivered(ctx, deliveryOf(payment))
		})
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
				case !errors.Is(err, store.ErrPaymentMoved):
					t.Errorf("round %d: %v, want ErrPaymentMoved", round, err)
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
