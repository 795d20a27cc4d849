package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// SendMessage appends the message in this transaction and returns where it was stored. A private message creates its chat if there is none.
// It returns ErrNothingToSelf or a refusal of sendRight. It waits for the locks, and then runs sendMessages with one message. See there for
// the order of locks.
func (tx *Tx) SendMessage(ctx context.Context, message OutgoingMessage) (*Sent, error) {
	to := message.To
	if message.Kind == KindPrivate {
		var err error
		if to, err = tx.openPrivateChat(ctx, message); err != nil {
			return nil, err
		}
	}
	last, err := tx.lockForSending(ctx, message, to)
	if err != nil {
		return nil, err
	}
	if len(message.Content) > longMessage {
		if err := tx.acquire(ctx, tx.indexing); err != nil {
			return nil, fmt.Errorf("wait for other long messages: %w", err)
		}
		defer tx.indexing.Release(1)
	}
	statement, values := sendStatement(tx.Now(), batchOf(paidMessage{OutgoingMessage: message, Closing: Closing{Delivery: &noDelivery},
		conversation: to}))
	placed, err := query[placedMessage](ctx, tx, statement, values)
	switch {
	case err != nil:
		return nil, fmt.Errorf("send message: %w", err)
	case !placed[0].Sent:
		return nil, errors.New("send message: the statement rejects what lockForSending allows")
	}
	tx.news = append(tx.news, message.concerns(to))
	return &Sent{ConversationID: to, Number: last + 1}, nil
}

// lockForSending locks the conversation and then the sender's membership, checks whether the sender may send, and returns the number of the
// last message. For a private chat openPrivateChat has checked the blocks before.
func (tx *Tx) lockForSending(ctx context.Context, message OutgoingMessage, to uuid.UUID) (last int64, err error) {
	found, err := gorm.G[Conversation](tx.db, forNoKeyUpdate).Where("id = ? AND kind = ?", to, message.Kind).Find(ctx)
	conversation, err := firstOr(found, err, "lock conversation", notFound[message.Kind])
	if err != nil {
		return 0, err
	}
	memberships, err := gorm.G[Membership](tx.db, forNoKeyUpdate).Where("conversation_id = ? AND agent_id = ?", to, message.Sender).Find(ctx)
	if err != nil {
		return 0, fmt.Errorf("lock membership: %w", err)
	}
	right := sendRight{Found: true, Recipient: true, Deleted: conversation.DeletedAt != nil}
	right.Admin = conversation.AdminID != nil && *conversation.AdminID == message.Sender
	if len(memberships) > 0 {
		right.Status = memberships[0].Status
	}
	return conversation.LastNumber, right.refusal(message.Kind, message.To)
}

// CheckReply returns ErrReplyNotFound if the message answers one that is not of its conversation. It says nothing to who may not read
// that: SendMessage does. No call can move a message to another conversation, so this needs no lock.
func (r *Reader) CheckReply(ctx context.Context, message OutgoingMessage) error {
	if message.ReplyTo == nil {
		return nil
	}
	var view *ConversationView
	var err error
	if message.Kind == KindPrivate {
		view = &ConversationView{}
		view.ID, err = r.findPrivateChat(ctx, pairOf(message.Sender, message.To))
	} else {
		view, err = r.ConversationView(ctx, message.Kind, message.To, message.Sender)
	}
	if err != nil || message.Kind == KindGroup && view.Status != StatusMember ||
		message.Kind == KindChannel && *view.AdminID != message.Sender {
		return err
	}
	if _, err = r.newestBefore(ctx, view, message.ReplyTo); errors.Is(err, ErrMessageNotFound) {
		return ErrReplyNotFound
	}
	return err
}

// messageCheck is a batch item: a message to check. The batch sets right.
type messageCheck struct {
	message OutgoingMessage
	right   sendRight
}

// checkMessage is the dry run of SendMessage, as a batch item. It returns nil if the message may be sent, and otherwise
// the refusal that SendMessage would return. It takes no locks and changes nothing.
func (s *Store) checkMessage(ctx context.Context, message OutgoingMessage) error {
	if message.toSelf() {
		return ErrNothingToSelf
	}
	check := &messageCheck{message: message}
	if err := s.group.checks.ask(ctx, check); err != nil {
		return fmt.Errorf("check message: %w", err)
	}
	return check.right.refusal(message.Kind, message.To)
}

var checkFields = fields[*messageCheck]{
	each("kind", "text", func(c *messageCheck) string { return c.message.Kind }),
	each("target", "uuid", func(c *messageCheck) [16]byte { return c.message.To }),
	each("sender", "uuid", func(c *messageCheck) [16]byte { return c.message.Sender }),
}

// checkMessages returns one row for each message, in the order of the messages. For every message it looks up each
// table by its key, in a subquery that the planner cannot turn into a scan.
var checkMessages = `
	SELECT c.id IS NOT NULL AS found, coalesce(c.deleted, false) AS deleted, coalesce(c.admin_id = i.sender, false) AS admin,
		coalesce((SELECT m.status FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id = i.sender), '') AS status,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM agents a WHERE a.id = i.target) > 0
			AND (SELECT count(*) FROM suspensions s WHERE s.agent_id = i.target AND s.erased) = 0 ELSE false END AS recipient,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM suspensions s WHERE s.agent_id = i.target) > 0 ELSE false END AS suspended,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM blocks b WHERE b.blocker_id = i.target AND b.blocked_id = i.sender) > 0
			ELSE false END AS blocked,
		CASE WHEN i.kind = 'private' THEN (SELECT count(*) FROM blocks b WHERE b.blocker_id = i.sender AND b.blocked_id = i.target) > 0
			ELSE false END AS blocking
	FROM ` + checkFields.items() + `
	LEFT JOIN LATERAL (
		SELECT o.id, o.admin_id, o.deleted_at IS NOT NULL AS deleted FROM conversations o
		WHERE i.kind <> 'private' AND o.id = i.target AND o.kind = i.kind LIMIT 1
	) c ON true
	ORDER BY i.n`

func (r *Reader) checkBatch(ctx context.Context, batch []batchItem[*messageCheck]) {
	rights, err := query[sendRight](ctx, r, checkMessages, checkFields.of(batch))
	finish(batch, func(i int, check *messageCheck) error {
		if err == nil {
			check.right = rights[i]
		}
		return err
	})
}
