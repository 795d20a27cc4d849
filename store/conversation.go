package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// Conversation is a private chat, group chat or channel. LastNumber is the number of its newest message and so the
// count of its messages; the clock orders nothing.
type Conversation struct {
	ID             uuid.UUID
	Kind           string
	Name           *string
	Description    *string
	AdminID        *uuid.UUID
	IsDiscoverable bool
	LastNumber     int64
	LastMessageAt  *time.Time
	MemberCount    int64
	Pinned         UUIDs
	CreatedAt      time.Time
	DeletedAt      *time.Time
}

// The kinds of conversation.
const (
	KindPrivate = "private"
	KindGroup   = "group"
	KindChannel = "channel"
)

// Seat is a conversation as one agent sees it: Status is empty for a stranger.
type Seat struct {
	Conversation
	Status     string
	ReadNumber int64
}

// notFound is what an unknown id of each kind is.
var notFound = map[string]*Refusal{KindPrivate: ErrChatNotFound, KindGroup: ErrChatNotFound, KindChannel: ErrChannelNotFound}

// Seat loads the conversation of that kind and the agent's place in it, in one round trip. ErrChatNotFound,
// ErrChannelNotFound, ErrDeleted.
func (s *Store) Seat(ctx context.Context, kind string, id, agent uuid.UUID) (*Seat, error) {
	seat, err := lookOne[Seat](ctx, s, `
		SELECT c.id, c.kind, c.name, c.description, c.admin_id, c.is_discoverable, c.last_number, c.last_message_at, c.member_count,
			CAST(c.pinned AS text) AS pinned, c.created_at, c.deleted_at,
			coalesce(m.status, '') AS status, coalesce(m.read_number, 0) AS read_number
		FROM conversations c LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = @agent
		WHERE c.id = @id AND c.kind = @kind`, pgx.NamedArgs{"agent": agent, "id": id, "kind": kind})
	switch {
	case err != nil:
		return nil, fmt.Errorf("load conversation: %w", err)
	case seat == nil:
		return nil, notFound[kind]
	case seat.DeletedAt != nil:
		return nil, ErrDeleted
	}
	return seat, nil
}

// Hold locks a conversation until the transaction ends. Whatever changes members, admin, bans, pins or deletion holds the
// conversation first and reads its Seat after, so that such changes happen one after the other and each sees the ones before.
func (s *Store) Hold(ctx context.Context, id uuid.UUID) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `SELECT 1 FROM conversations WHERE id = ? FOR NO KEY UPDATE`, id)
	if err != nil {
		return fmt.Errorf("hold conversation: %w", err)
	}
	return nil
}

// CreateConversation founds a group chat or channel with nobody in it.
func (s *Store) CreateConversation(ctx context.Context, kind string, id, admin uuid.UUID, name string, description *string, isDiscoverable bool) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `
		INSERT INTO conversations (id, kind, name, description, admin_id, is_discoverable, created_at)
		VALUES (?, ?, ?, ?, ?, ?, clock_timestamp())`, id, kind, name, description, admin, isDiscoverable)
	if err != nil {
		return fmt.Errorf("create conversation: %w", err)
	}
	return nil
}

// EditConversation changes of a group chat or channel what is not nil.
func (s *Store) EditConversation(ctx context.Context, id uuid.UUID, name, description *string, isDiscoverable *bool) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `
		UPDATE conversations SET name = coalesce(?, name), description = coalesce(?, description), is_discoverable = coalesce(?, is_discoverable)
		WHERE id = ?`, name, description, isDiscoverable, id)
	if err != nil {
		return fmt.Errorf("edit conversation: %w", err)
	}
	return nil
}

// DeleteConversation ends a group chat or channel; its row, members and messages stay. Hold it first.
func (s *Store) DeleteConversation(ctx context.Context, id uuid.UUID) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `UPDATE conversations SET deleted_at = clock_timestamp() WHERE id = ?`, id)
	if err != nil {
		return fmt.Errorf("delete conversation: %w", err)
	}
	return nil
}

func (s *Store) setAdmin(ctx context.Context, id, admin uuid.UUID) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `UPDATE conversations SET admin_id = ? WHERE id = ?`, admin, id)
	if err != nil {
		return fmt.Errorf("set admin: %w", err)
	}
	return nil
}

// Members returns the agents of a conversation in the order they joined, as the viewer sees them: who has blocked it shows
// no description.
func (s *Store) Members(ctx context.Context, id, viewer uuid.UUID) ([]Agent, error) {
	agents, err := gorm.G[Agent](s.db).Raw(`
		SELECT a.id, a.username, `+shownDescription+`, a.is_discoverable, a.created_at
		FROM memberships m JOIN agents a ON a.id = m.agent_id
		WHERE m.conversation_id = @id AND m.status = 'member' ORDER BY m.joined_at, a.id`, map[string]any{"id": id, "viewer": viewer}).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return agents, nil
}
