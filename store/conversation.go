package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Conversation is a private chat, group chat or channel. LastNumber is the number of its newest message, and FirstNumber that
// of the oldest one that was not removed. Messages are ordered by number, not by time.
type Conversation struct {
	ID             uuid.UUID
	Kind           string
	Name           *string
	Description    *string
	AdminID        *uuid.UUID
	IsDiscoverable bool
	FirstNumber    int64 `gorm:"->"` // only retention changes it
	LastNumber     int64
	LastMessageAt  *time.Time
	MemberCount    int64
	Pinned         UUIDs
	CreatedAt      time.Time
	DeletedAt      *time.Time
	OldestAt       *time.Time `gorm:"->"`
	ErasedAt       *time.Time `gorm:"->"`
}

// MessageCount is the number of messages of the conversation.
func (c *Conversation) MessageCount() int64 { return c.LastNumber - c.FirstNumber + 1 }

// The kinds of conversation.
const (
	KindPrivate = "private"
	KindGroup   = "group"
	KindChannel = "channel"
)

// ConversationView is a conversation as one agent sees it. Status is empty if the agent has no membership. Removed messages count
// as read: ReadNumber is at least the number before the first message.
type ConversationView struct {
	Conversation
	Status                string
	ReadNumber, UnreadOwn int64
}

// notFound maps each kind to its error for an unknown id.
var notFound = map[string]*Refusal{KindPrivate: ErrChatNotFound, KindGroup: ErrChatNotFound, KindChannel: ErrChannelNotFound}

// ConversationView loads the conversation of this kind and the membership of the agent, in one round trip. It returns
// ErrChatNotFound, ErrChannelNotFound or ErrDeleted.
func (r *Reader) ConversationView(ctx context.Context, kind string, id, agent uuid.UUID) (*ConversationView, error) {
	found, err := query[ConversationView](ctx, r, `SELECT `+viewColumns+`
		FROM conversations c LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = @agent
		WHERE c.id = @id AND c.kind = @kind`, named{"id": id, "kind": kind, "agent": agent})
	switch {
	case err != nil:
		return nil, fmt.Errorf("load conversation: %w", err)
	case len(found) == 0:
		return nil, notFound[kind]
	case found[0].DeletedAt != nil:
		return nil, ErrDeleted
	}
	return &found[0], nil
}

// viewColumns are the columns of ConversationView, of a conversation c and the membership m of the agent. UUIDs reads the
// text of an array.
const viewColumns = `c.id, c.kind, c.name, c.description, c.admin_id, c.is_discoverable, c.first_number, c.last_number, c.last_message_at, c.member_count,
	CAST(c.pinned AS text) AS pinned, c.created_at, c.deleted_at, coalesce(m.status, '') AS status, ` + readUpTo + ` AS read_number, coalesce(m.unread_own, 0) AS unread_own`

// LockConversation locks a conversation until the transaction ends. Code that changes members, admin, bans, pins or
// deletion locks the conversation first and then reads its ConversationView. So such changes run one after the other,
// and each sees the earlier ones.
func (tx *Tx) LockConversation(ctx context.Context, id uuid.UUID) error {
	if _, err := gorm.G[Conversation](tx.db, forNoKeyUpdate).Select("id").Where("id = ?", id).Find(ctx); err != nil {
		return fmt.Errorf("lock conversation: %w", err)
	}
	return nil
}

// CreateConversation creates a group chat or channel without members.
func (tx *Tx) CreateConversation(ctx context.Context, kind string, id, admin uuid.UUID, name string, description *string, isDiscoverable bool) error {
	err := gorm.G[Conversation](tx.db).Create(ctx, &Conversation{
		ID: id, Kind: kind, Name: &name, Description: description, AdminID: &admin, IsDiscoverable: isDiscoverable,
	})
	if err != nil {
		return fmt.Errorf("create conversation: %w", err)
	}
	return nil
}

// EditConversation changes the fields of a group chat or channel that are not nil.
func (tx *Tx) EditConversation(ctx context.Context, id uuid.UUID, name, description *string, isDiscoverable *bool) error {
	changes := map[string]any{}
	change(changes, "name", name)
	change(changes, "description", description)
	change(changes, "is_discoverable", isDiscoverable)
	return tx.changeConversation(ctx, id, changes)
}

// change adds the column to the changes, unless the value is nil.
func change[T any](changes map[string]any, column string, value *T) {
	if value != nil {
		changes[column] = *value
	}
}

// DeleteConversation marks a group chat or channel as deleted, and notifies the members of a group chat. Its row, members and
// messages stay. Lock the conversation first.
func (tx *Tx) DeleteConversation(ctx context.Context, kind string, id, actor uuid.UUID) error {
	if err := tx.changeConversation(ctx, id, map[string]any{"deleted_at": tx.Now()}); err != nil || kind != KindGroup {
		return err // a channel may have any number of subscribers
	}
	members, err := tx.memberIDs(ctx, id)
	if err != nil {
		return err
	}
	return tx.notify(ctx, NoticeDeleted, id, actor, members)
}

// memberIDs returns the members or subscribers, those that joined first before the others.
func (r *Reader) memberIDs(ctx context.Context, id uuid.UUID) (members []uuid.UUID, err error) {
	err = gorm.G[Membership](r.db).Select("agent_id").Where("conversation_id = ? AND status = 'member'", id).Order("joined_at, agent_id").Scan(ctx, &members)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return members, nil
}

// setAdmin makes another agent the admin and notifies it. It returns ErrAgentSuspended, or ErrAgentNotFound if the agent was erased.
func (tx *Tx) setAdmin(ctx context.Context, id, from, to uuid.UUID) error {
	if err := tx.checkUsable(ctx, to); err != nil {
		return err
	}
	if err := tx.changeConversation(ctx, id, map[string]any{"admin_id": to}); err != nil {
		return err
	}
	return tx.notify(ctx, NoticeMadeAdmin, id, from, []uuid.UUID{to})
}

func (tx *Tx) changeConversation(ctx context.Context, id uuid.UUID, changes map[string]any) error {
	if len(changes) == 0 {
		return nil
	}
	if err := tx.gorm(ctx, &Conversation{}).Where("id = ?", id).Updates(changes).Error; err != nil {
		return fmt.Errorf("change conversation: %w", err)
	}
	return nil
}

// Member is an agent as a member of a chat.
type Member struct {
	ID          uuid.UUID
	Username    string
	Description string
	IsAdmin     bool
	JoinedAt    time.Time
}

// Members returns the members of a chat in the order in which they joined, as the viewer sees them. The description of
// a member that has blocked the viewer is empty. Members and admin come from the same snapshot.
func (r *Reader) Members(ctx context.Context, id, viewer uuid.UUID) ([]Member, error) {
	members, err := query[Member](ctx, r, `
		SELECT agents.id, agents.username, coalesce(agents.id = c.admin_id, false) AS is_admin, m.joined_at, `+shownDescription+`
		FROM memberships m JOIN agents ON agents.id = m.agent_id JOIN conversations c ON c.id = m.conversation_id
		WHERE m.conversation_id = @id AND m.status = 'member' ORDER BY m.joined_at, agents.id`, named{"id": id, "viewer": viewer})
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return members, nil
}
