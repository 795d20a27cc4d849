package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Message is a message in a conversation. Number is its position there.
type Message struct {
	ConversationID uuid.UUID
	Number         int64
	ID             uuid.UUID
	SenderID       uuid.UUID
	Content        string
	ReplyTo        *uuid.UUID // the message that this one answers; retention can have removed it
	About          *About     `gorm:"serializer:json"`
	CreatedAt      time.Time
	RemovedAt      *time.Time // nil unless the operator removed the content
}

// About tells why the service wrote a message in the name of its sender: what the sender did, and the group chat or channel,
// with its name at that time.
type About struct {
	Type   string    `json:"type"`
	Kind   string    `json:"kind"`
	Source uuid.UUID `json:"source"`
	Name   string    `json:"name"`
}

// The types of About.
const (
	AboutAccessRequest = "access_request"
	AboutAdminTransfer = "admin_transfer"
)

// SentMessage is a message with the username of its sender.
type SentMessage struct {
	Message
	SenderUsername string
	Unreacted      bool // known to have no reaction
}

// OutgoingMessage is a message to send. To is an agent if Kind is KindPrivate, otherwise a group chat or channel.
type OutgoingMessage struct {
	Kind           string
	To, Sender, ID uuid.UUID
	Content        string
	ReplyTo        *uuid.UUID
	About          *About
}

func (m OutgoingMessage) toSelf() bool { return m.Kind == KindPrivate && m.To == m.Sender }

// Sent is the result of sending a message. Number is zero where the message shares its commit with others.
type Sent struct {
	ConversationID uuid.UUID
	Number         int64
}

// refusal is the refusal with a code of the SQL function send_refusal, which has the rules.
func (m OutgoingMessage) refusal(code string) error {
	switch code {
	case "agent_not_found":
		return ErrAgentNotFound.Because(m.To)
	case "not_found":
		return notFound[m.Kind]
	}
	if refusal, known := sendRefusals[code]; known {
		return refusal
	}
	return fmt.Errorf("send_refusal returned %q", code)
}

var sendRefusals = map[string]*Refusal{
	"blocked": ErrBlocked, "blocking": ErrBlocking, "agent_suspended": ErrAgentSuspended, "deleted": ErrDeleted, "not_admin": ErrNotAdmin,
	"banned": ErrBanned, "not_member": ErrNotMember, "reply_not_found": ErrReplyNotFound,
}

// MessagePage is a page of a conversation, newest first. Next is the oldest message on the page if the page was cut short.
type MessagePage struct {
	Messages []SentMessage
	Next     *uuid.UUID
}

// sentColumns are the columns of SentMessage, of a message m and its sender a.
const sentColumns = `m.conversation_id, m.number, m.id, m.sender_id, m.content, m.reply_to, m.about, m.created_at, m.removed_at,
	a.username AS sender_username`

const listMessages = `
	SELECT ` + sentColumns + `, NOT EXISTS (SELECT FROM reactions
			WHERE conversation_id = @conversation AND number <= @newest AND number > @oldest) AS unreacted FROM (
		SELECT o.conversation_id, o.number, o.id, o.sender_id, o.content, o.reply_to, o.about, o.created_at, o.removed_at,
			sum(octet_length(o.content)) OVER (ORDER BY o.number DESC ROWS UNBOUNDED PRECEDING) AS size
		FROM messages o WHERE o.conversation_id = @conversation AND o.number <= @newest AND o.number > @oldest
	) m JOIN agents a ON a.id = m.sender_id
	WHERE m.size <= @most OR m.number = @newest ORDER BY m.number DESC`

// Messages returns page (from 1) of n messages of the conversation, newest first, as many as fit on a page by size. Numbers have no gaps,
// so a page is one range of the key, however far back it is, and it stays the same range if other pages were cut short. With before, pages
// start at the message that is older than that one. It returns ErrMessageNotFound if before is not a message of this conversation, and
// ErrLongPage if the page has more than most bytes of content and most is ShortPage.
func (r *Reader) Messages(
	ctx context.Context, view *ConversationView, n, page int64, before *uuid.UUID, most int64,
) (*MessagePage, error) {
	newest, err := r.newestBefore(ctx, view, before)
	if err != nil {
		return nil, err
	}
	if page-1 > newest/n { // beyond the end; also prevents an overflow of the product below
		return &MessagePage{}, nil
	}
	newest -= (page - 1) * n
	messages, err := list[SentMessage](ctx, r, most, listMessages,
		named{"conversation": view.ID, "newest": newest, "oldest": newest - n, "most": most})
	if err != nil {
		return nil, fmt.Errorf("list messages: %w", err)
	}
	found := &MessagePage{Messages: messages[:fitting(len(messages), func(i int) string { return messages[i].Content })]}
	if last := len(found.Messages); last > 0 && int64(last) < min(n, newest-view.FirstNumber+1) {
		if most == ShortPage {
			return nil, ErrLongPage
		}
		found.Next = &found.Messages[last-1].ID
	}
	return found, nil
}

// newestBefore returns the number at which pages start, or ErrMessageNotFound.
func (r *Reader) newestBefore(ctx context.Context, view *ConversationView, before *uuid.UUID) (int64, error) {
	if before == nil {
		return view.LastNumber, nil
	}
	found, err := gorm.G[Message](r.db).Select("number").Where("id = ? AND conversation_id = ?", *before, view.ID).Find(ctx)
	anchor, err := firstOr(found, err, "find message", ErrMessageNotFound)
	if err != nil {
		return 0, err
	}
	return anchor.Number - 1, nil
}

// MessageRef names a message by its place in its conversation.
type MessageRef struct {
	Conversation uuid.UUID
	Number       int64
}

// MessagesAt returns messages in the order of refs. Those that were removed by retention are left out.
func (r *Reader) MessagesAt(ctx context.Context, refs []MessageRef) ([]UnreadMessage, error) {
	conversations, numbers := make([]uuid.UUID, len(refs)), make([]int64, len(refs))
	for i, ref := range refs {
		conversations[i], numbers[i] = ref.Conversation, ref.Number
	}
	found, err := query[UnreadMessage](ctx, r, `SELECT `+sentColumns+`, c.kind, coalesce(c.name, a.username) AS source_name
		FROM unnest(CAST(@conversations AS uuid[]), CAST(@numbers AS bigint[])) WITH ORDINALITY AS ref (conversation_id, number, n)
		JOIN messages m ON m.conversation_id = ref.conversation_id AND m.number = ref.number
		JOIN conversations c ON c.id = m.conversation_id JOIN agents a ON a.id = m.sender_id
		ORDER BY ref.n`, named{"conversations": conversations, "numbers": numbers})
	return found, wrap("load messages", err)
}

// MessagesByID returns messages of a conversation in the order of their ids. Ids of no message there are left out.
func (r *Reader) MessagesByID(ctx context.Context, conversation uuid.UUID, ids []uuid.UUID) ([]SentMessage, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	found, err := read[SentMessage](ctx, r, `SELECT `+sentColumns+` FROM messages m JOIN agents a ON a.id = m.sender_id
		WHERE m.conversation_id = @conversation AND m.id = ANY (CAST(@ids AS uuid[]))
		ORDER BY array_position(CAST(@ids AS uuid[]), m.id)`, named{"conversation": conversation, "ids": ids})
	return found, wrap("load messages", err)
}
