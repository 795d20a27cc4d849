package store_test

import (
	"cmp"
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
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

func beginning(payer string, agent uuid.UUID) *store.Payment {
	hash := sha256.Sum256([]byte("x"))
	return &store.Payment{PaymentRecord: store.PaymentRecord{
		ID: uuid.Must(uuid.NewV7()), X402Version: 2, Scheme: "exact", Network: "eip155:84532", Asset: "0xa", Payer: payer,
		Nonce: "0x" + uuid.NewString(), PayTo: "0xd",
		Amount: 7, ValidBefore: time.Now().Add(time.Hour), Operation: "send", AgentID: &agent,
	}, Fingerprint: hash[:], SignatureHash: hash[:], Payload: []byte("{}"), Request: []byte("{}")}
}

// deliveryOf is the closing of a payment that was delivered.
func deliveryOf(payment *store.Payment) store.Closing {
	return store.Closing{Delivery: &store.Delivery{Payment: payment.ID, State: payment.State, Fingerprint: payment.Fingerprint,
		Transaction: "0xf"}, Encode: encoded}
}

func encoded(store.Response) ([]byte, error) { return []byte("stored"), nil }

// sending is the work of a call that sends messages.
func sending(messages ...store.OutgoingMessage) store.Work {
	if len(messages) > 1 {
		return sendingAlone(messages...)
	}
	return sharing(func(ctx context.Context, do store.Actions) error { return sendAll(ctx, do, messages) })
}

// sendingAlone is sending in a transaction of its own.
func sendingAlone(messages ...store.OutgoingMessage) store.Work {
	return store.Work{Transacted: func(ctx context.Context, tx *store.Tx) (store.Response, error) {
		return store.Response{Body: []byte("{}")}, sendAll(ctx, tx, messages)
	}}
}

func sendAll(ctx context.Context, do store.Actions, messages []store.OutgoingMessage) error {
	for _, message := range messages {
		if _, err := do.SendMessage(ctx, message); err != nil {
			return err
		}
	}
	return nil
}

// sharing is the work of a call that shares its commit.
func sharing(run func(ctx context.Context, do store.Actions) error) store.Work {
	return store.Work{Batched: func(ctx context.Context, _ *store.Reader, do store.Actions) (store.Response, error) {
		return store.Response{Body: []byte("{}")}, run(ctx, do)
	}}
}

// alone runs fn in a transaction.
func alone[T any](ctx context.Context, s *store.Store, fn func(tx *store.Tx) (T, error)) (result T, err error) {
	err = s.Transaction(ctx, func(tx *store.Tx) error {
		result, err = fn(tx)
		return err
	})
	return result, err
}

// commit does what a call does, and closes its payment.
func commit(ctx context.Context, s *store.Store, work store.Work, closing store.Closing) error {
	_, err := s.Commit(ctx, work, closing)
	return err
}

// batchCall is a call of TestBatches, and the error that it gets.
type batchCall struct {
	payment  *store.Payment
	messages []store.OutgoingMessage
	giveUp   bool // roll back after sending
	want     error
}

// callers are what TestBatches makes its calls of.
type callers struct {
	*ground
	stranger, blocked uuid.UUID
	used              *store.Payment // delivered before
	newcomers         chan uuid.UUID // without private chats
}

func newCallers(t *testing.T) *callers {
	t.Helper()
	g := newGround(t)
	c := &callers{ground: g, stranger: agent(t, g.Store, "stranger"), blocked: agent(t, g.Store, "blocked")}
	if err := g.Transaction(t.Context(), func(tx *store.Tx) error { return tx.BlockAgent(t.Context(), g.agents[0], c.blocked) }); err != nil {
		t.Fatal(err)
	}
	c.used = beginning("0xused", g.agents[0])
	if err := errors.Join(g.BeginSettlement(t.Context(), c.used, time.Minute, nil),
		commit(t.Context(), g.Store, sending(), deliveryOf(c.used))); err != nil {
		t.Fatal(err)
	}
	c.newcomers = make(chan uuid.UUID, 150) // more than will be wanted
	for i := range cap(c.newcomers) {
		c.newcomers <- agent(t, g.Store, fmt.Sprintf("newcomer_%d", i))
	}
	return c
}

// call returns a random call: most succeed, the others fail in every way there is.
func (c *callers) call(random *rand.Rand, payer string) batchCall {
	from := c.agents[random.IntN(4)]
	where := c.conversations[random.IntN(len(c.conversations))]
	message, err := c.OutgoingTo(c.t.Context(), where, c.members[where][random.IntN(len(c.members[where]))], uuid.Must(uuid.NewV7()), "text")
	if err != nil {
		c.t.Error(err)
	}
	call := batchCall{payment: beginning(payer, from), messages: []store.OutgoingMessage{message}}
	switch random.IntN(12) {
	case 0: // delivered before
		again := *c.used
		call.payment, call.want = &again, store.ErrStalePayment
	case 1: // in the ledger under another id
		call.payment.Payer, call.payment.Nonce, call.want = c.used.Payer, c.used.Nonce, store.ErrStalePayment
	case 2:
		call.giveUp, call.want = true, errGiveUp
	case 3:
		call.messages[0], call.want = private(c.blocked, c.agents[0], "hello?"), store.ErrBlocked
	case 4:
		call.messages[0], call.want = toGroup(c.stranger, c.group, "hello?"), store.ErrNotMember
	case 5: // a chat that is not there yet
		call.messages[0] = private(from, <-c.newcomers, "hello")
	case 6: // more than one thing, which cannot be shared
		call.messages = append(call.messages, call.messages[0])
		call.messages[1].ID = uuid.Must(uuid.NewV7())
	case 7: // the payment alone
		call.messages = nil
	}
	return call
}

// make makes the call as the payment engine does, and reports whether it succeeded.
func (c *callers) make(call batchCall) bool {
	ctx := c.t.Context()
	if len(call.messages) == 1 { // the dry run rejects what may not be sent, and nothing else
		var want error
		if errors.Is(call.want, store.ErrBlocked) || errors.Is(call.want, store.ErrNotMember) {
			want = call.want
		}
		if err := c.DryRun(ctx, sending(call.messages[0])); !errors.Is(err, want) {
			c.t.Errorf("the check says %v, want %v", err, want)
		}
	}
	if err := c.BeginSettlement(ctx, call.payment, time.Minute, nil); err != nil && !errors.Is(err, store.ErrStalePayment) {
		c.t.Errorf("begin: %v", err)
	}
	var err error
	if call.giveUp {
		err = c.Transaction(ctx, func(tx *store.Tx) error {
			_, err := tx.SendMessage(ctx, call.messages[0])
			return cmp.Or(err, errGiveUp)
		})
	} else {
		err = commit(ctx, c.Store, sending(call.messages...), deliveryOf(call.payment))
	}
	if !errors.Is(err, call.want) {
		c.t.Errorf("got %v, want %v", err, call.want)
	}
	return err == nil
}

// lockBoth locks two conversations in one transaction, as somebody who leaves one and writes to another.
func (c *callers) lockBoth(n int) {
	err := c.Transaction(c.t.Context(), func(tx *store.Tx) error {
		err := tx.LockConversation(c.t.Context(), c.conversations[n%len(c.conversations)])
		time.Sleep(time.Millisecond)
		return errors.Join(err, tx.LockConversation(c.t.Context(), c.conversations[(n*5+3)%len(c.conversations)]))
	})
	if err != nil {
		c.t.Errorf("lock two conversations: %v", err)
	}
}

func (g *ground) count(query string) (n int64) {
	g.t.Helper()
	g.query(func(connection *pgx.Conn) error { return connection.QueryRow(g.t.Context(), query).Scan(&n) })
	return n
}

// TestBatches lets many calls share statements while some of them fail in every way there is. Each gets what it would have
// got alone, and what is in the database is what the calls were told.
func TestBatches(t *testing.T) {
	t.Parallel()
	c := newCallers(t)
	const messages, payments = `SELECT count(*) FROM messages`, `SELECT count(*) FROM payments WHERE state = 'delivered'`
	messagesBefore, paymentsBefore := c.count(messages), c.count(payments)
	var sent, paid atomic.Int64
	var calls, lockers sync.WaitGroup
	for i := range 24 {
		calls.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0)) //nolint:gosec // small
			for range 40 {
				if call := c.call(random, fmt.Sprintf("0x%d", i)); c.make(call) {
					sent.Add(int64(len(call.messages)))
					paid.Add(1)
				}
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
	if got := c.count(payments) - paymentsBefore; got != paid.Load() {
		t.Errorf("%d payments are there, %d were made", got, paid.Load())
	}
	if n := c.count(`SELECT count(*) FROM conversations c WHERE last_number <> (SELECT count(*) FROM messages m WHERE m.conversation_id = c.id)
		OR last_number <> coalesce((SELECT max(number) FROM messages m WHERE m.conversation_id = c.id), 0)`); n != 0 {
		t.Errorf("%d conversations count their messages wrongly", n)
	}
	c.checkCounters("all of this")
}

// TestBatchDeliversAPaymentOnce: many requests redeem one payment at the same moment. One of them has its effect, whether it sends
// a message or writes nothing, and the others are told that the payment has changed. So is another attempt of the call that was refused.
func TestBatchDeliversAPaymentOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	deliver := func(payment *store.Payment, text string) error {
		if text == "" {
			return commit(ctx, g.Store, sending(), deliveryOf(payment))
		}
		return commit(ctx, g.Store, sending(private(g.agents[0], g.agents[1], text)), deliveryOf(payment))
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
				if err := errors.Join(g.BeginSettlement(ctx, payment, time.Minute, nil), deliver(payment, []string{"", "other"}[n%2])); err != nil {
					t.Errorf("another payment: %v", err)
				}
			}
		})
	}
	for round := range 20 {
		payment := beginning(fmt.Sprintf("0xredeemed%d", round), g.agents[0])
		err := errors.Join(g.BeginSettlement(ctx, payment, time.Minute, nil), g.PaymentUndeliverable(ctx, payment.ID, "0xf", "not_member"))
		testkit.NoError(t, err)
		text := []string{"", fmt.Sprintf("redeemed %d", round)}[round%2]
		if err := deliver(payment, text); !errors.Is(err, store.ErrStalePayment) {
			t.Errorf("round %d: another attempt of the refused call: %v, want ErrStalePayment", round, err)
		}
		payment.State = store.PaymentUndeliverable
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
		if _, err := alone(ctx, g.Store, func(tx *store.Tx) (*store.Sent, error) {
			return tx.SendMessage(ctx, store.OutgoingMessage{Kind: store.KindPrivate, To: reader, Sender: writer, ID: uuid.Must(uuid.NewV7()),
				Content: "read me"})
		}); err != nil {
			t.Fatal(err)
		}
	}
	chat, err := g.PrivateChat(ctx, writer, reader)
	testkit.NoError(t, err)
	start, err := g.ConversationView(ctx, store.KindPrivate, chat, reader)
	testkit.NoError(t, err)
	first := start.ReadNumber
	marker := func(when string, want int64) {
		t.Helper()
		view, err := g.ConversationView(ctx, store.KindPrivate, chat, reader)
		if err != nil || view.ReadNumber != want {
			t.Errorf("%s the marker is at %d (%v), want %d", when, view.ReadNumber, err, want)
		}
	}
	payment := beginning("0xreader", reader)
	testkit.NoError(t, g.BeginSettlement(ctx, payment, time.Minute, nil))
	reading := func(messages int64) store.Work {
		return sharing(func(ctx context.Context, do store.Actions) error {
			err := do.MarkRead(ctx, reader, store.ReadRange{Conversation: chat, Oldest: 1, Newest: first + messages})
			marker("before the payment is closed", first)
			return err
		})
	}
	testkit.NoError(t, commit(ctx, g.Store, reading(1), deliveryOf(payment)))
	marker("with the payment", first+1)
	first++
	if err := commit(ctx, g.Store, reading(1), deliveryOf(payment)); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("a closed payment is closed again: %v, want ErrStalePayment", err)
	}
	marker("after the closed payment was closed again", first)
}

// TestFailedReadIsAlone: of calls whose reads share a round trip, only those fail whose own statements do.
func TestFailedReadIsAlone(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	s, err := store.Open(ctx, url, storetest.Patient)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	alice := agent(t, s, "key")
	broken, err := pgxpool.New(ctx, url)
	testkit.NoError(t, err)
	defer broken.Close()
	if _, err := broken.Exec(ctx, "ALTER TABLE blocks RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if _, err := s.Profile(ctx, alice, &alice, nil); err == nil || errors.Is(err, store.ErrAgentNotFound) {
				t.Errorf("a read of a table that is not there: %v", err)
			}
		})
		all.Go(func() {
			if found, err := s.ConversationView(ctx, store.KindGroup, alice, alice); !errors.Is(err, store.ErrChatNotFound) {
				t.Errorf("a read beside it: %v, %v, want that there is no such chat", found, err)
			}
		})
	}
	all.Wait()
}
