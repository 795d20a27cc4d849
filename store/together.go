package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Calls that come at the same time share a transaction where all that they write is one message and one owed payment, or
// the payment alone: one statement sends all the messages, one writes all the payments, one commit makes all of it
// durable. While one such transaction is under way the next calls gather for the one after it, so that nobody waits
// for company. If anything goes wrong for one of them the whole comes to nothing, and each does its part again alone,
// which says what is wrong for whom.

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

// errand is one call's part in a shared transaction. Its channels have room for what comes: nobody waits to speak.
type errand struct {
	out  outgoing
	sent chan placed // from the transaction: what became of the message, Number is 0 if the call must see to it alone
	debt chan *debt  // to it: what is owed for the message; nil if the call has failed
	done chan error  // from it, in the end
}

func newErrand() *errand {
	return &errand{sent: make(chan placed, 1), debt: make(chan *debt, 1), done: make(chan error, 1)}
}

// Together is Transaction, shared with others if all that fn does is to look, to send one message, and to owe. If others
// spoil it fn runs again.
func (s *Store) Together(ctx context.Context, fn func(tx *Store) error) error {
	err := s.transact(ctx, &transaction{store: s, share: true}, fn, (*transaction).commit)
	if errors.Is(err, errAlone) {
		return s.Transaction(ctx, fn)
	}
	return err
}

// sendTogether sends a message in a shared transaction, if it can be: if not, the call is alone.
func (s *Store) sendTogether(out outgoing) (sent *Sent, alone bool) {
	if s.tx == nil || !s.tx.share || s.tx.begun || s.tx.errand != nil {
		return nil, true
	}
	e := newErrand()
	e.out = out
	s.sends.add(e)
	placed := <-e.sent
	if placed.Number == 0 {
		return nil, true
	}
	s.tx.errand = e
	return &placed.Sent, false
}

// commitTogether ends a call's part in a shared transaction.
func (t *transaction) commitTogether() error {
	e := t.errand
	if e == nil { // there is nothing but the debt
		e = newErrand()
		e.debt <- t.debt
		t.store.debts.add(e)
	} else {
		t.errand = nil
		e.debt <- t.debt
	}
	return <-e.done
}

// leave tells that the call has failed after its message was sent.
func (e *errand) leave() { e.debt <- nil }

func (s *Store) sendGathered(all []*errand) { s.sendAll(all, sendUnheld) }

// sendAll sends messages, and commits them with what is owed for them.
func (s *Store) sendAll(all []*errand, statement string) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	connection, rows, err := s.sendUncommitted(ctx, all, statement)
	if err != nil { // each will see for itself
		for _, e := range all {
			e.sent <- placed{}
		}
		return
	}
	defer connection.Release()
	defer rollback(ctx, connection.Conn()) // unless it is committed
	var members []*errand
	busy := map[[2]uuid.UUID][]*errand{}
	for i, e := range all {
		switch {
		case rows[i].Number > 0:
			members = append(members, e)
			e.sent <- rows[i]
		case rows[i].Busy && statement == sendUnheld:
			busy[e.out.place()] = append(busy[e.out.place()], e)
		default:
			e.sent <- placed{}
		}
	}
	for _, waiting := range busy {
		go s.sendAll(waiting, sendWaiting)
	}
	var debts []*debt
	for _, e := range members {
		debts = append(debts, <-e.debt)
	}
	if len(debts) == 0 {
		return
	}
	err = commitDebts(ctx, connection.Conn(), debts, &pgx.Batch{})
	for _, e := range members {
		e.done <- err
	}
}

// sendUncommitted begins a transaction with messages, and returns the row of each.
func (s *Store) sendUncommitted(ctx context.Context, all []*errand, statement string) (*pgxpool.Conn, []placed, error) {
	connection, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	messages := make([]outgoing, len(all))
	for i, e := range all {
		messages[i] = e.out
	}
	var rows []placed
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(statement, sendValues(messages)).Query(func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, scan[placed])
		return err
	})
	if err := connection.SendBatch(ctx, batch).Close(); err != nil {
		rollback(ctx, connection.Conn())
		connection.Release()
		return nil, nil, err
	}
	return connection, rows, nil
}

// writeDebts writes payments for which nothing else is to be written.
func (s *Store) writeDebts(all []*errand) {
	ctx, cancel := context.WithTimeout(context.Background(), sharedTimeout)
	defer cancel()
	debts := make([]*debt, len(all))
	for i, e := range all {
		debts[i] = <-e.debt
	}
	connection, err := s.pool.Acquire(ctx)
	if err == nil {
		defer connection.Release()
		defer rollback(ctx, connection.Conn())
		batch := &pgx.Batch{}
		batch.Queue("BEGIN")
		err = commitDebts(ctx, connection.Conn(), debts, batch)
	}
	for _, e := range all {
		e.done <- err
	}
}

// commitDebts ends a transaction with what is owed. errAlone if nothing of it has become true, because of one of several.
func commitDebts(ctx context.Context, connection *pgx.Conn, debts []*debt, batch *pgx.Batch) error {
	for _, debt := range debts {
		if debt == nil || !debt.like(debts[0]) {
			return errAlone
		}
	}
	for _, last := range debtStatements(debts) {
		queue(batch, last)
	}
	batch.Queue("COMMIT")
	err := connection.SendBatch(ctx, batch).Close()
	if err == nil || len(debts) == 1 {
		return err
	}
	// Only what PostgreSQL itself says tells that nothing was committed.
	_, refused := errors.AsType[*pgconn.PgError](err)
	if refused || errors.Is(err, ErrPaymentMoved) || errors.Is(err, ErrOverCap) {
		return errAlone
	}
	return err
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
