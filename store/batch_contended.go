package store

import (
	"cmp"
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"
)

// A conversation is contended if batches find it locked by another transaction, usually because agents write to it through
// another server too. Its messages get a queue of their own, of which at most one transaction waits for the lock. The transaction
// takes its messages when it has the lock, so it sends everything that came while it waited: two servers take turns with
// batches that are as large as those of one. Batches of several conversations never wait for a lock.

const (
	// maxLocked is how many batches with other conversations try to send a message that finds its conversation locked.
	maxLocked = 2
	// ownBatch is the number of messages from which a transaction for one conversation costs little per message.
	ownBatch = 4
	// calmAfter is how many times in a row a conversation with large batches is not locked before it leaves its queue. Servers that
	// take turns find the lock free by chance.
	calmAfter = 8
	// maxContended is the number of queues. A queue that is dropped still sends what is in it.
	maxContended = 1024
)

// conversationQueue sends messages to one contended conversation.
type conversationQueue struct {
	*batcher[paidMessage]
	size int // of the largest batch, of which each later batch forgets half
	free int // how many times in a row the conversation was not locked
}

// leaves tells, after a batch, whether the messages of the conversation can share batches with others again.
func (q *conversationQueue) leaves(size int, free bool) bool {
	q.size = max(size, q.size/2)
	if !free {
		q.free = 0
		return false
	}
	q.free++
	return q.size < ownBatch || q.free >= calmAfter
}

// sendAgain sends items of a batch that found their conversations locked: with the next batch, or in the queue of the conversation.
func (q *sendQueues) sendAgain(items []batchItem[paidMessage]) {
	var next []batchItem[paidMessage]
	for _, item := range items {
		queue, ok := q.contended.Get(item.value.conversation)
		item.value.locked++
		switch {
		case item.late(q.limits.Queue):
			item.done <- errNotSent
		case ok:
			queue.push(item)
		case item.value.locked < maxLocked:
			next = append(next, item)
		default:
			q.queueFor(item.value.conversation).push(item)
		}
	}
	if next != nil { // of one batch, so of one queue
		q.general(next[0].value).retry(next)
	}
}

// queueFor returns the queue of a contended conversation, which it creates if there is none.
func (q *sendQueues) queueFor(conversation uuid.UUID) *conversationQueue {
	queue := &conversationQueue{batcher: &batcher[paidMessage]{keys: paidMessage.keys, bytes: paidMessage.bytes, batchKind: q.kind}}
	queue.begin = func() (func(context.Context, []batchItem[paidMessage]), error) {
		return q.beginContended(conversation, queue)
	}
	if first, ok, _ := q.contended.PeekOrAdd(conversation, queue); ok {
		return first
	}
	return queue
}

// conversationFree locks the conversation if it is not locked, and returns a row; lockConversation then waits for the lock.
const (
	conversationFree = `SELECT 1 FROM conversations WHERE id = @id FOR NO KEY UPDATE SKIP LOCKED`
	lockConversation = `SELECT 1 FROM conversations WHERE id = @id FOR NO KEY UPDATE`
)

// beginContended begins a transaction that has locked the conversation, and returns the function that sends messages in it. It
// holds no lock while it waits. Acquire limits the wait for a connection; Statement limits the transaction. At most a quarter of the
// connections are used for that, so that other calls do not wait for the lock too.
func (q *sendQueues) beginContended(
	conversation uuid.UUID, own *conversationQueue,
) (func(context.Context, []batchItem[paidMessage]), error) {
	if err := q.acquire(context.Background(), q.waiters); err != nil {
		return nil, notSent(err)
	}
	connection, err := q.pool.Acquire(context.Background())
	if err != nil {
		q.waiters.Release(1)
		return nil, notSent(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(q.limits.Statement, batchTimeout))
	end := func() {
		cancel()
		connection.Release() // the pool closes it if the transaction has failed
		q.waiters.Release(1)
	}
	var free []int
	batch := &pgx.Batch{}
	batch.Queue(`BEGIN`)
	queue(batch, &free, conversationFree, named{"id": conversation})
	batch.Queue(lockConversation, named{"id": conversation})
	if err := connection.SendBatch(ctx, batch).Close(); err != nil {
		end()
		return nil, notSent(err)
	}
	return func(traced context.Context, items []batchItem[paidMessage]) {
		q.sendLocked(trace.ContextWithSpan(ctx, trace.SpanFromContext(traced)), connection, items)
		end()
		if own.leaves(len(items), len(free) > 0) {
			q.contended.Remove(conversation)
			for _, item := range own.all() {
				q.general(item.value).push(item)
			}
		}
	}, nil
}

// sendLocked sends messages to one conversation in the transaction that has locked it, and commits. Messages that charge a voucher
// need another statement than those that do not.
func (q *sendQueues) sendLocked(ctx context.Context, connection *pgxpool.Conn, items []batchItem[paidMessage]) {
	var kinds [2][]batchItem[paidMessage]
	var placed [2][]placedMessage
	for _, item := range items {
		kind := 0
		if item.value.Charge != nil {
			kind = 1
		}
		kinds[kind] = append(kinds[kind], item)
	}
	batch := &pgx.Batch{}
	for i, kind := range kinds {
		if kind != nil {
			statement, values := sendStatement(q.Now(), kind)
			queue(batch, &placed[i], statement, values)
		}
	}
	batch.Queue(`COMMIT`)
	err := connection.SendBatch(ctx, batch).Close()
	for i, kind := range kinds {
		if err == nil {
			q.announceSent(kind, placed[i]) //nolint:contextcheck // as above
		}
		finish(kind, func(n int, message paidMessage) error {
			if err != nil {
				return unlessRolledBack(err)
			}
			return placed[i][n].result(message)
		})
	}
}
