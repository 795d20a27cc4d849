package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Group commit: calls that come at the same time share one statement and so one commit. While a batch is under way the
// next calls gather for the one after it, so that nobody waits for company. There are four kinds of batch: messages that are
// checked in a dry run, payments that begin (settling), payments that are delivered, and messages that are sent together with
// the delivery of their payments.

// errAlone means that a transaction cannot be part of a batch: it has to run by itself.
var errAlone = errors.New("this transaction cannot be part of a batch")

const (
	// batchTimeout bounds the statement of a batch.
	batchTimeout = 30 * time.Second
	// maxBatch is how many calls share a statement at most.
	maxBatch = 64
)

// batchItem is one call's part of a batch: a payment that begins, or one that is delivered, with its message if out is not
// nil; or a message to be checked, whose conversation the batch fills in. done has room for the result, so that the batch
// waits for nobody.
type batchItem struct {
	payment      *Payment
	delivery     *Delivery
	out          *outgoing
	conversation *uuid.UUID
	done         chan error
}

// closes tells whether both items close the same payment.
func (i *batchItem) closes(other *batchItem) bool {
	return i.delivery != nil && other.delivery != nil && i.delivery.Payment == other.delivery.Payment
}

// batcher gathers items while a batch of them is under way.
type batcher struct {
	run func([]*batchItem)

	mu      sync.Mutex
	waiting []*batchItem
	busy    bool
}

// do makes the item part of the next batch and returns what came of it.
func (b *batcher) do(item *batchItem) error {
	b.add(item)
	return <-item.done
}

// ask is do for a batch that changes nothing: a caller that leaves need not wait for it.
func (b *batcher) ask(ctx context.Context, item *batchItem) error {
	b.add(item)
	select {
	case err := <-item.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *batcher) add(item *batchItem) {
	item.done = make(chan error, 1)
	b.mu.Lock()
	b.waiting = append(b.waiting, item)
	if !b.busy {
		b.busy = true
		go b.work()
	}
	b.mu.Unlock()
}

func (b *batcher) work() {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), maxBatch)
		if n == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		// A statement closes a payment once, however many of its items say so: two requests that redeem one payment must not
		// share one. The later one waits for the next batch, which finds the payment closed.
		for i := 1; i < n; i++ {
			if slices.ContainsFunc(b.waiting[:i], b.waiting[i].closes) {
				n = i
			}
		}
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.mu.Unlock()
		b.run(batch)
	}
}

// checkAll finds the conversations of messages that may be sent.
func (s *Store) checkAll(all []*batchItem) {
	kinds, to, senders := make([]string, len(all)), make([][16]byte, len(all)), make([][16]byte, len(all))
	for i, item := range all {
		kinds[i], to[i], senders[i] = item.out.kind, item.out.to, item.out.sender
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	rows, _ := s.pool.Query(ctx, checkMessages, kinds, to, senders)
	found, err := pgx.CollectRows(rows, pgx.RowTo[*uuid.UUID])
	for i, item := range all {
		if err == nil {
			item.conversation = found[i]
		}
		item.done <- err
	}
}

// beginAll writes payments that begin. One whose authorization or identifier is in the ledger already is left out.
func (s *Store) beginAll(all []*batchItem) {
	payments := make([]*Payment, len(all))
	for i, item := range all {
		payments[i] = item.payment
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	rows, _ := s.pool.Query(ctx, insertPayments, paymentValues(payments)...) // CollectRows returns the error
	written, err := pgx.CollectRows(rows, scan[begunPayment])
	for _, item := range all {
		i := slices.IndexFunc(written, func(one begunPayment) bool { return one.ID == item.payment.ID })
		switch {
		case rolledBack(err) && len(all) > 1: // for one of them, or for a deadlock with another server's: each by itself
			item.done <- errAlone
		case err != nil:
			item.done <- fmt.Errorf("write payment: %w", err)
		case i < 0:
			item.done <- ErrPaymentMoved
		default:
			item.payment.CreatedAt = written[i].CreatedAt
			item.done <- nil
		}
	}
}

// deliverAll closes payments that have nothing but a response to record.
func (s *Store) deliverAll(all []*batchItem) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	rows, _ := s.pool.Query(ctx, deliverPayments, deliveryValues(all)...)
	closed, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	for _, item := range all {
		if err == nil && !slices.Contains(closed, item.delivery.Payment) {
			item.done <- ErrPaymentMoved
			continue
		}
		item.done <- err
	}
}

// sendUnheld sends messages to conversations that nobody else has locked.
func (s *Store) sendUnheld(all []*batchItem) { s.sendAll(all, sendDelivered) }

// sendAll sends messages and closes the payments of those that were sent. Messages to conversations that somebody else has
// locked wait in batches of their own: one for each conversation.
func (s *Store) sendAll(all []*batchItem, statement string) {
	ctx, cancel := context.WithTimeout(context.Background(), batchTimeout)
	defer cancel()
	messages := make([]outgoing, len(all))
	for i, item := range all {
		messages[i] = *item.out
	}
	rows, _ := s.pool.Query(ctx, statement, append(sendValues(messages), deliveryValues(all)...)...)
	sent, err := pgx.CollectRows(rows, scan[placed])
	busy := map[[2]uuid.UUID][]*batchItem{}
	for i, item := range all {
		switch {
		case rolledBack(err): // each finds out by itself what is wrong
			item.done <- errAlone
		case err != nil:
			item.done <- err
		case sent[i].Number > 0:
			item.done <- nil
		case sent[i].Busy && statement == sendDelivered:
			busy[item.out.place()] = append(busy[item.out.place()], item)
		default: // by itself it finds out why
			item.done <- errAlone
		}
	}
	for _, waiting := range busy {
		go s.sendAll(waiting, sendDeliveredWaiting)
	}
}

// rolledBack tells whether PostgreSQL itself says that a statement was undone. Any other error leaves open whether it was
// committed.
func rolledBack(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && !strings.HasPrefix(said.Code, "57P") && !strings.HasPrefix(said.Code, "08")
}

// unnest reads the arrays of a batch, from parameter first on. The sub-selects hide their lengths from the planner: it would
// find a plan for these very lengths cheaper than one for any, and so plan the statement anew for every batch, which takes
// longer than running it.
func unnest(first int, types ...string) string {
	arrays := make([]string, len(types))
	for i, name := range types {
		arrays[i] = fmt.Sprintf("(SELECT CAST($%d AS %s[]))", first+i, name)
	}
	return "unnest(" + strings.Join(arrays, ", ") + ")"
}

// place is where a message goes, as far as that tells conversations apart.
func (o outgoing) place() [2]uuid.UUID {
	if o.kind != KindPrivate {
		return [2]uuid.UUID{o.to}
	}
	low, high := pair(o.sender, o.to)
	return [2]uuid.UUID{low, high}
}
