package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Calls that come at the same time share a transaction where all that they write is one message and one owed payment, or
// the payment alone: one statement writes all messages with their payments, one counts what is owed, one commit makes all
// of it durable. While one such transaction is under way the next calls gather for the one after it, so that nobody waits
// for company. A message that cannot be sent is left out with its payment; anything else that goes wrong for one of them
// undoes the whole. Whoever is left with nothing does its part again alone, which says what is wrong for whom.

// errAlone means that the shared transaction has come to nothing, or cannot do what is asked: to be done again alone.
var errAlone = errors.New("this cannot be done together with others")

const (
	// sharedTimeout bounds a shared transaction.
	sharedTimeout = 30 * time.Second
	// closingPause is how long what has settled waits for more of it: no caller does.
	closingPause = 10 * time.Millisecond
	// mostTogether is how many calls share a transaction at most.
	mostTogether = 64
)

// errand is one call's part in a shared transaction.
type errand struct {
	out  *outgoing // nil: nothing but the debt
	debt *debt
	done chan error // has room: nobody waits to speak
}

// Together is Transaction, shared with others if all that fn does is to look, to send one message, and to owe. Where that
// comes to nothing fn runs again.
func (s *Store) Together(ctx context.Context, fn func(tx *Store) error) error {
	err := s.transact(ctx, &transaction{store: s, share: true}, fn, (*transaction).commit)
	if errors.Is(err, errAlone) {
		return s.Transaction(ctx, fn)
	}
	return err
}

// sendTogether sends a message when the transaction ends, if that can be shared, and returns the conversation; uuid.Nil if
// the call is alone.
func (s *Store) sendTogether(ctx context.Context, out outgoing) (uuid.UUID, error) {
	if s.tx == nil || !s.tx.share || s.tx.begun || s.tx.out != nil {
		return uuid.Nil, nil
	}
	conversation := out.to
	if out.kind == KindPrivate {
		var err error
		if conversation, err = s.privateChat(ctx, out.sender, out.to); err != nil || conversation == uuid.Nil {
			return uuid.Nil, err
		}
	}
	s.tx.out = &out
	return conversation, nil
}

// commitTogether ends a call's part in a shared transaction.
func (t *transaction) commitTogether() error {
	e := &errand{t.out, t.debt, make(chan error, 1)}
	if e.out == nil {
		t.store.debts.add(e)
	} else {
		t.store.sends.add(e)
	}
	return <-e.done
}

// writeDebts writes payments for which nothing else is to be written.
func (s *Store) writeDebts(all []*errand) {
	alike, err := s.share(all, func(batch *pgx.Batch, _ []*errand, payments []*Payment) {
		queue(batch, lastStatement{insertPayments, paymentValues(payments), inserted})
	})
	for _, e := range alike {
		e.done <- err
	}
}

// sendGathered sends messages to wherever nobody is in the way.
func (s *Store) sendGathered(all []*errand) { s.sendAll(all, sendUnheld) }

// sendAll sends messages and writes what is owed for those that were sent.
func (s *Store) sendAll(all []*errand, statement string) {
	var rows []placed
	alike, err := s.share(all, func(batch *pgx.Batch, alike []*errand, payments []*Payment) {
		messages := make([]outgoing, len(alike))
		for i, e := range alike {
			messages[i] = *e.out
		}
		batch.Queue(statement, append(sendValues(messages), paymentValues(payments)...)...).Query(func(found pgx.Rows) (err error) {
			rows, err = pgx.CollectRows(found, scan[placed])
			return err
		})
	})
	if errors.Is(err, errAlone) && len(rows) == len(alike) && !slices.ContainsFunc(rows, func(row placed) bool { return row.Number > 0 }) {
		err = nil // nothing was sent, so that there was nothing to owe
	}
	busy := map[[2]uuid.UUID][]*errand{}
	for i, e := range alike {
		switch {
		case err != nil:
			e.done <- err
		case rows[i].Number > 0:
			e.done <- nil
		case rows[i].Busy && statement == sendUnheld:
			busy[e.out.place()] = append(busy[e.out.place()], e)
		default: // alone it will see why
			e.done <- errAlone
		}
	}
	for _, waiting := range busy {
		go s.sendAll(waiting, sendWaiting)
	}
}

// share runs one statement, which write queues for all that can go together, and holds the caps, in one transaction and one
// round trip. It returns those that took part; the others it sends away. The error is errAlone if nothing has become true.
func (s *Store) share(all []*errand, write func(*pgx.Batch, []*errand, []*Payment)) (alike []*errand, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	var debts []*debt
	for _, e := range all {
		if !e.debt.like(all[0].debt) {
			e.done <- errAlone
			continue
		}
		alike, debts = append(alike, e), append(debts, e.debt)
	}
	connection, err := s.pool.Acquire(ctx)
	if err != nil {
		return alike, err
	}
	defer connection.Release()
	defer rollback(ctx, connection.Conn()) // unless it is committed
	payments := shard(debts)
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	write(batch, alike, payments)
	queue(batch, holdCaps(debts[0].caps, payments))
	batch.Queue("COMMIT")
	err = connection.SendBatch(ctx, batch).Close()
	// Only what PostgreSQL itself says tells that nothing was committed.
	if _, refused := errors.AsType[*pgconn.PgError](err); refused || errors.Is(err, ErrOverCap) || errors.Is(err, ErrPaymentMoved) {
		return alike, errAlone
	}
	return alike, err
}

// place is where a message goes, as far as that tells apart what conversations are held.
func (o outgoing) place() [2]uuid.UUID {
	if o.kind != KindPrivate {
		return [2]uuid.UUID{o.to}
	}
	low, high := pair(o.sender, o.to)
	return [2]uuid.UUID{low, high}
}

// combiner gathers what comes while a batch of it is under way.
type combiner[T any] struct {
	mu      sync.Mutex
	waiting []T
	busy    bool
	pause   time.Duration // for which a batch waits before it begins
	do      func([]T)
}

func (c *combiner[T]) add(one T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, one)
	if !c.busy {
		c.busy = true
		go c.work()
	}
}

func (c *combiner[T]) work() {
	for {
		time.Sleep(c.pause)
		c.mu.Lock()
		n := min(len(c.waiting), mostTogether)
		if n == 0 {
			c.busy = false
			c.mu.Unlock()
			return
		}
		batch := c.waiting[:n:n]
		c.waiting = c.waiting[n:]
		c.mu.Unlock()
		c.do(batch)
	}
}
