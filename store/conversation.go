package store

import (
	"context"
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
	Quiet                 bool // see Membership
}

// notFound maps each kind to its error for an unknown id.
var notFound = map[string]*Refusal{KindPrivate: ErrChatNotFound, KindGroup: ErrChatNotFound, KindChannel: ErrChannelNotFound}

// ConversationView loads the conversation of this kind and the membership of the agent, in one round trip. It returns
// ErrChatNotFound, ErrChannelNotFound or ErrDeleted.
func (r *Reader) ConversationView(ctx context.Context, kind string, id, agent uuid.UUID) (*ConversationView, error) {
	found, err := read[ConversationView](ctx, r, `SELECT `+viewColumns+`
		FROM conversations c LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = @agent
		WHERE c.id = @id AND c.kind = @kind`, named{"id": id, "kind": kind, "agent": agent})
	view, err := firstOr(found, err, "load conversation", notFound[kind])
	if err == nil && view.DeletedAt != nil {
		return nil, ErrDeleted
	}
	return view, err
}

// viewColumns are the columns of ConversationView, of a conversation c and the membership m of the agent. UUIDs reads the text of an array.
const viewColumns = `c.id, c.kind, c.name, c.description, c.admin_id, c.is_discoverable, c.first_number, c.last_number,
	c.last_message_at, c.member_count, CAST(c.pinned AS text) AS pinned, c.created_at, c.deleted_at,
	coalesce(m.status, '') AS status, ` + readUpTo + ` AS read_number,
	coalesce(m.unread_own, 0) AS unread_own, coalesce(m.quiet, false) AS quiet`

// StoredConversation returns a conversation, also if it is deleted, or ErrChatNotFound.
func (r *Reader) StoredConversation(ctx context.Context, id uuid.UUID) (*Conversation, error) {
	found, err := gorm.G[Conversation](r.db).Where("id = ?", id).Find(ctx)
	return firstOr(found, err, "load conversation", ErrChatNotFound)
}

// LockConversation locks a conversation until the transaction ends. Code that changes members, admin, bans, pins or deletion locks it first
// and then reads its ConversationView. So such changes run one after the other, and each sees the earlier ones.
func (tx *Tx) LockConversation(ctx context.Context, id uuid.UUID) error {
	_, err := gorm.G[Conversation](tx.db, forNoKeyUpdate).Select("id").Where("id = ?", id).Find(ctx)
	return wrap("lock conversation", err)
}

// CreateConversation creates a group chat or channel without members.
func (tx *Tx) CreateConversation(
	ctx context.Context, kind string, id, admin uuid.UUID, name string, description *string, isDiscoverable bool,
) error {
	err := gorm.G[Conversation](tx.db).Create(ctx, &Conversation{
		ID: id, Kind: kind, Name: &name, Description: description, AdminID: &admin, IsDiscoverable: isDiscoverable,
	})
	return wrap("create conversation", err)
}

// EditConversation changes the fields of a group chat or channel that are not nil.
func (tx *Tx) EditConversation(ctx context.Context, id uuid.UUID, name, description *string, isDiscoverable *bool) error {
	if name == nil && description == nil && isDiscoverable == nil {
		return nil
	}
	_, err := exec(ctx, tx, `UPDATE conversations SET name = coalesce(@name, name), description = coalesce(@description, description),
		is_discoverable = coalesce(@listed, is_discoverable) WHERE id = @id`,
		named{"id": id, "name": name, "description": description, "listed": isDiscoverable})
	return wrap("edit conversation", err)
}

// DeleteConversation marks a group chat or channel as deleted, and notifies the members of a group chat. Its row, members and
// messages stay. Lock the conversation first.
func (tx *Tx) DeleteConversation(ctx context.Context, kind string, id, actor uuid.UUID) error {
	members, err := tx.markDeleted(ctx, kind, id)
	if err != nil {
		return err
	}
	return tx.notify(ctx, NoticeDeleted, id, actor, members)
}

// markDeleted returns the members of a group chat. A channel may have any number of subscribers.
func (tx *Tx) markDeleted(ctx context.Context, kind string, id uuid.UUID) (members []uuid.UUID, err error) {
	if err := tx.changeConversation(ctx, id, map[string]any{"deleted_at": tx.Now()}); err != nil || kind != KindGroup {
		return nil, err
	}
	err = gorm.G[Membership](tx.db).Select("agent_id").Where("conversation_id = ? AND status = 'member'", id).Scan(ctx, &members)
	return members, wrap("list members", err)
}

// Transfer makes another agent the admin of a group chat or channel, and notifies it. The new admin of a group chat is a member; the former
// admin of a channel becomes a subscriber. It returns ErrAgentNotFound, ErrBlocked, ErrAgentBanned, ErrSuccessorNotMember or
// ErrAgentSuspended. Lock the conversation first.
func (tx *Tx) Transfer(ctx context.Context, kind string, id, from, to uuid.UUID) error {
	if err := tx.CheckAgents(ctx, []uuid.UUID{to}); err != nil {
		return err
	}
	blocks := gorm.G[Block](tx.db).Where("blocker_id = ? AND blocked_id = ?", to, from)
	if err := refuseIf(ctx, ErrBlocked, "look for a block", blocks); err != nil {
		return err
	}
	view, err := tx.ConversationView(ctx, kind, id, to)
	switch {
	case err != nil:
		return err
	case view.Status == StatusBanned:
		return ErrAgentBanned.Because(to)
	case kind == KindGroup && view.Status != StatusMember:
		return ErrSuccessorNotMember
	}
	if err := tx.setAdmin(ctx, id, from, to); err != nil || kind == KindGroup {
		return err
	}
	return tx.Join(ctx, id, from)
}

// setAdmin makes another agent the admin and notifies it. It returns ErrAgentSuspended, or ErrAgentNotFound if the agent was erased.
func (tx *Tx) setAdmin(ctx context.Context, id, from, to uuid.UUID) error {
	suspension, err := tx.Suspension(ctx, to)
	switch {
	case err != nil:
		return err
	case suspension != nil && suspension.Erased:
		return ErrAgentNotFound
	case suspension != nil:
		return ErrAgentSuspended
	}
	if err := tx.changeConversation(ctx, id, map[string]any{"admin_id": to}); err != nil {
		return err
	}
	return tx.notify(ctx, NoticeMadeAdmin, id, from, []uuid.UUID{to})
}

func (tx *Tx) changeConversation(ctx context.Context, id uuid.UUID, changes map[string]any) error {
	return wrap("change conversation", tx.gorm(ctx, &Conversation{}).Where("id = ?", id).Updates(changes).Error)
}

// Member is an agent as a member of a chat.
type Member struct {
	ID          uuid.UUID
	Username    string
	Description string
	IsAdmin     bool
	JoinedAt    time.Time
}

// fewMembers is how many members are listed in a round trip with other reads.
const fewMembers = 200

// Members returns the members of a chat in the order in which they joined, as the viewer sees them, with the first 160 characters of their
// descriptions. That of a member that has blocked the viewer is empty. Members and admin come from the same snapshot. It returns
// ErrLongPage if there are more than fewMembers and most is ShortPage.
func (r *Reader) Members(ctx context.Context, chat *ConversationView, viewer uuid.UUID, most int64) ([]Member, error) {
	if chat.MemberCount <= fewMembers {
		most = ShortPage
	} else if most == ShortPage {
		return nil, ErrLongPage
	}
	members, err := list[Member](ctx, r, most, `
		SELECT a.id, a.username, coalesce(a.id = c.admin_id, false) AS is_admin, m.joined_at,
			CASE WHEN EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = a.id AND b.blocked_id = @viewer) THEN ''
				ELSE left(a.description, 160) END AS description
		FROM memberships m JOIN agents a ON a.id = m.agent_id JOIN conversations c ON c.id = m.conversation_id
		WHERE m.conversation_id = @id AND m.status = 'member' ORDER BY m.joined_at, a.id`, named{"id": chat.ID, "viewer": viewer})
	return members, wrap("list members", err)
}
