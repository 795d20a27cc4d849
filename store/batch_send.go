package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
)

// paidMessage is a batch item: a message to a conversation, and how its payment ends. It has the methods of both (keys, refusal).
type paidMessage struct {
	OutgoingMessage
	Closing
	conversation uuid.UUID
	locked       int // how many batches have found the conversation locked
}

// placedMessage is a row of sendMessages or sendCharged: the number of the message, 0 if it was not sent; whether another transaction has
// locked its conversation; and the code of its refusal.
type placedMessage struct {
	Number  int64
	Locked  bool
	Refusal *string
	chargedChannel
}

// result is the result of the group commit. errNotBatched means that the payment was closed before, or that the voucher cannot be charged.
func (p placedMessage) result(message paidMessage) error {
	switch {
	case p.Number > 0:
		message.Charge.done(p.chargedChannel)
		return nil
	case p.Refusal != nil:
		return message.refusal(*p.Refusal)
	}
	return errNotBatched
}

func (m paidMessage) bytes() int { return len(m.Content) + m.Closing.bytes() }

// noDelivery is the delivery of a message without a payment: its transaction closes the payment by itself.
var noDelivery Delivery

// payment is nil for noDelivery.
func (d *Delivery) payment() *uuid.UUID {
	if d == &noDelivery {
		return nil
	}
	return &d.Payment
}

// sendStatement returns the statement that sends a batch, and its values. Either all messages charge a voucher, or none does. pgx encodes
// [16]byte with fewer allocations than uuid.UUID.
func sendStatement(now time.Time, batch []batchItem[paidMessage]) (statement string, values pairs) {
	if batch[0].value.Charge != nil {
		statement, values = sendCharged, voucherValues(batch, func(m paidMessage) *VoucherCharge { return m.Charge })
	} else {
		statement, values = sendMessages, deliveryValues(batch, func(m paidMessage) *Delivery { return m.Delivery })
	}
	return statement, append(values,
		pair{"kind", column(batch, func(m paidMessage) string { return m.Kind })},
		pair{"conversation", column(batch, func(m paidMessage) [16]byte { return m.conversation })},
		pair{"recipient", column(batch, func(m paidMessage) [16]byte { return m.To })},
		pair{"sender", column(batch, func(m paidMessage) [16]byte { return m.Sender })},
		pair{"message", column(batch, func(m paidMessage) [16]byte { return m.ID })},
		pair{"content", column(batch, func(m paidMessage) string { return m.Content })},
		pair{"reply_to", optionalColumn(batch, func(m paidMessage) *uuid.UUID { return m.ReplyTo })},
		pair{"about", optionalColumn(batch, func(m paidMessage) *About { return m.About })},
		pair{"now", now})
}

// sendQueues send the messages of batches.
type sendQueues struct {
	Reader
	plain, charged anyConversation // those of the second charge vouchers
	contended      *lru.Cache[uuid.UUID, *conversationQueue]
	waiters        *semaphore.Weighted // bounds the transactions that wait for a contended conversation
	kind           batchKind           // of the batches to contended conversations
}

// longMessage is the size from which a message has batches apart, in bytes. PostgreSQL takes up to 50 ms to index 16,384 characters that
// are new to it.
const longMessage = 4 << 10

// anyConversation are the batches of messages to any conversation. Short messages do not wait for long ones, of which one batch or
// transaction is at work.
type anyConversation struct{ short, long *batcher[paidMessage] }

func (q *sendQueues) forAny(kind batchKind) anyConversation {
	of := func() *batcher[paidMessage] {
		b := newBatcher(kind, q.sendBatch, paidMessage.keys)
		b.bytes = paidMessage.bytes
		return b
	}
	queues := anyConversation{of(), of()}
	begin := queues.long.begin
	queues.long.begin = func() (func(context.Context, []batchItem[paidMessage]), error) {
		run, err := begin()
		if err == nil {
			err = q.acquire(context.Background(), q.indexing)
		}
		if err != nil {
			return nil, notSent(err)
		}
		return func(ctx context.Context, batch []batchItem[paidMessage]) {
			defer q.indexing.Release(1)
			run(ctx, batch)
		}, nil
	}
	return queues
}

func newSendQueues(r Reader, waiters *semaphore.Weighted, of func(kind string) batchKind) *sendQueues {
	contended, _ := lru.New[uuid.UUID, *conversationQueue](maxContended) // fails for sizes below 1
	q := &sendQueues{Reader: r, contended: contended, waiters: waiters, kind: of("contended_sends")}
	q.plain, q.charged = q.forAny(of("sends")), q.forAny(of("charged_sends"))
	return q
}

// send appends the message to the conversation and closes its payment in one transaction, as an item of the group commit. It returns a
// refusal, or errNotBatched if nothing changed and the message needs a transaction of its own: the payment was closed before, the voucher
// cannot be charged, or a statement failed.
func (q *sendQueues) send(ctx context.Context, message paidMessage) error {
	if queue, ok := q.contended.Get(message.conversation); ok {
		return queue.do(ctx, message)
	}
	return q.general(message).do(ctx, message)
}

// general is the batcher for messages to any conversation.
func (q *sendQueues) general(message paidMessage) *batcher[paidMessage] {
	queues := q.plain
	if message.Charge != nil {
		queues = q.charged
	}
	if message.bytes() > longMessage {
		return queues.long
	}
	return queues.short
}

// sendBatch sends messages. Either all of them charge a voucher, or none does.
func (q *sendQueues) sendBatch(ctx context.Context, batch []batchItem[paidMessage]) {
	statement, values := sendStatement(q.Now(), batch)
	placed, err := query[placedMessage](ctx, q, statement, values)
	var locked []batchItem[paidMessage]
	if err == nil {
		q.announceSent(batch, placed) //nolint:contextcheck // announcements of many calls go together
	}
	for i, item := range batch {
		switch {
		case err != nil:
			item.done <- unlessRolledBack(err)
		case placed[i].Locked:
			locked = append(locked, item)
		default:
			item.done <- placed[i].result(item.value)
		}
	}
	q.sendAgain(locked) //nolint:contextcheck // the next batch is other work
}

// announceSent announces the messages of a batch that were sent.
func (q *sendQueues) announceSent(batch []batchItem[paidMessage], placed []placedMessage) {
	news := make([]uuid.UUID, 0, len(batch))
	for i, item := range batch {
		if placed[i].Number > 0 {
			news = append(news, item.value.concerns(item.value.conversation))
		}
	}
	q.announce(news...)
}

// unlessRolledBack returns errNotBatched for a statement that was rolled back. Each item then runs in a transaction of
// its own, which returns its own error.
func unlessRolledBack(err error) error {
	if rolledBack(err) {
		return errNotBatched
	}
	return fmt.Errorf("send message: %w", err)
}
