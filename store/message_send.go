package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// SendMessage appends the message in this transaction and returns where it was stored. A private message creates its chat if there is none.
// It returns ErrNothingToSelf or the refusal of send_refusal. It waits for the lock of the conversation, and then runs sendMessages with
// one message.
func (tx *Tx) SendMessage(ctx context.Context, message OutgoingMessage) (*Sent, error) {
	to := message.To
	if message.Kind == KindPrivate {
		var err error
		if to, err = tx.openPrivateChat(ctx, message); err != nil {
			return nil, err
		}
	}
	found, err := exec(ctx, tx, lockConversation, named{"id": to})
	if err := changedOr(found, err, "lock conversation", notFound[message.Kind]); err != nil {
		return nil, err
	}
	if len(message.Content) > longMessage {
		if err := tx.acquire(ctx, tx.indexing); err != nil {
			return nil, fmt.Errorf("wait for other long messages: %w", err)
		}
		defer tx.indexing.Release(1)
	}
	free := paidMessage{OutgoingMessage: message, Closing: Closing{Delivery: &noDelivery}, conversation: to}
	statement, values := sendStatement(tx.Now(), batchOf(free))
	placed, err := single(query[placedMessage](ctx, tx, statement, values))
	if err == nil {
		err = placed.result(free)
	}
	if err != nil {
		return nil, fmt.Errorf("send message: %w", err)
	}
	tx.news = append(tx.news, message.concerns(to))
	return &Sent{ConversationID: to, Number: placed.Number}, nil
}

// messageCheck is a batch item: a message to check. The batch sets refused.
type messageCheck struct {
	message      OutgoingMessage
	conversation uuid.UUID // of a private chat only if the message is a reply
	refused      *string
}

// checkMessage is the dry run of SendMessage, as a batch item. It returns nil if the message may be sent, and otherwise the refusal that
// SendMessage would return. It takes no locks and changes nothing.
func (s *Store) checkMessage(ctx context.Context, message OutgoingMessage) (err error) {
	if message.toSelf() {
		return ErrNothingToSelf
	}
	check := &messageCheck{message: message, conversation: message.To}
	if message.Kind == KindPrivate && message.ReplyTo != nil {
		if check.conversation, err = s.PrivateChat(ctx, message.Sender, message.To); err != nil {
			return err
		}
	}
	if err := s.group.checks.ask(ctx, check); err != nil {
		return fmt.Errorf("check message: %w", err)
	}
	return check.refusal()
}

func (c *messageCheck) refusal() error {
	if c.refused == nil {
		return nil
	}
	return c.message.refusal(*c.refused)
}

func (r *Reader) checkBatch(ctx context.Context, batch []batchItem[*messageCheck]) {
	err := checkAll(ctx, r, batch)
	finish(batch, func(int, *messageCheck) error { return err })
}

// checkAll runs checkMessages.
func checkAll(ctx context.Context, on session, batch []batchItem[*messageCheck]) error {
	refused, err := query[*string](ctx, on, checkMessages, checkValues(batch))
	for i, code := range refused {
		batch[i].value.refused = code
	}
	return wrap("check messages", err)
}

// checkValues are the values of checkMessages.
func checkValues(batch []batchItem[*messageCheck]) pairs {
	return pairs{
		{"kind", column(batch, func(c *messageCheck) string { return c.message.Kind })},
		{"conversation", column(batch, func(c *messageCheck) [16]byte { return c.conversation })},
		{"sender", column(batch, func(c *messageCheck) [16]byte { return c.message.Sender })},
		{"recipient", column(batch, func(c *messageCheck) [16]byte { return c.message.To })},
		{"reply_to", optionalColumn(batch, func(c *messageCheck) *uuid.UUID { return c.message.ReplyTo })},
	}
}
