package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// GroupMember is an agent as a member of a group chat.
type GroupMember struct {
	ID          uuid.UUID
	Username    string
	Description string
	IsAdmin     bool
	JoinedAt    time.Time
}

// GroupMembers returns the members in the order they joined, as the viewer sees them: who has blocked it shows no
// description. Who is the admin comes from the same moment as they do.
func (s *Store) GroupMembers(ctx context.Context, id, viewer uuid.UUID) ([]GroupMember, error) {
	members, err := gorm.G[GroupMember](s.db).Raw(`
		SELECT a.id, a.username, `+shownDescription+`, a.id = c.admin_id AS is_admin, m.joined_at
		FROM conversations c JOIN memberships m ON m.conversation_id = c.id JOIN agents a ON a.id = m.agent_id
		WHERE c.id = @id AND m.status = 'member' ORDER BY m.joined_at, a.id`, map[string]any{"id": id, "viewer": viewer}).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("list group members: %w", err)
	}
	return members, nil
}

// AddGroupMembers makes existing agents members, in this order, on behalf of admin. Those who are stay as they are, whatever
// stands between them and the admin. ErrBlocked, ErrBanned, ErrMemberLimit. Hold the group first.
func (s *Store) AddGroupMembers(ctx context.Context, group, admin uuid.UUID, agents []uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	newcomers, err := gorm.G[Agent](s.db).Raw(`
		SELECT wanted.id FROM unnest(CAST(? AS uuid[])) WITH ORDINALITY AS wanted (id, position)
		WHERE NOT EXISTS (SELECT 1 FROM memberships m WHERE m.conversation_id = ? AND m.agent_id = wanted.id AND m.status = 'member')
		ORDER BY wanted.position`, UUIDs(agents), group).Find(ctx)
	if err != nil {
		return fmt.Errorf("look for newcomers: %w", err)
	}
	ids := make([]uuid.UUID, len(newcomers))
	for i, newcomer := range newcomers {
		ids[i] = newcomer.ID
	}
	blocked, err := s.BlockedByAny(ctx, admin, ids)
	if err != nil {
		return err
	}
	if blocked {
		return ErrBlocked
	}
	if err := s.Join(ctx, group, ids...); err != nil {
		return err
	}
	count, err := gorm.G[int64](s.db).Raw(`SELECT member_count FROM conversations WHERE id = ?`, group).Take(ctx)
	if err != nil {
		return fmt.Errorf("count members: %w", err)
	}
	if count > MemberLimit {
		return ErrMemberLimit
	}
	return nil
}

// BlockedByAny tells whether one of the others has blocked the agent.
func (s *Store) BlockedByAny(ctx context.Context, agent uuid.UUID, others []uuid.UUID) (bool, error) {
	blocked, err := gorm.G[int64](s.db).Raw(`
		SELECT count(*) FROM blocks WHERE blocked_id = ? AND blocker_id = ANY (CAST(? AS uuid[]))`, agent, UUIDs(others)).Take(ctx)
	if err != nil {
		return false, fmt.Errorf("look for blocks: %w", err)
	}
	return blocked > 0, nil
}

// Unpin takes the pins of the messages away; those that are not pinned do not matter. Hold the group first.
func (s *Store) Unpin(ctx context.Context, group uuid.UUID, messages []uuid.UUID) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `
		UPDATE conversations SET pinned = ARRAY(
			SELECT pin.id FROM unnest(pinned) WITH ORDINALITY AS pin (id, position) WHERE pin.id <> ALL (CAST(? AS uuid[])) ORDER BY pin.position
		) WHERE id = ?`, UUIDs(messages), group)
	if err != nil {
		return fmt.Errorf("unpin messages: %w", err)
	}
	return nil
}

// SendGroupMessage appends a message of a member in one round trip; nil if the sender is none, or there is no such group
// any more.
func (s *Store) SendGroupMessage(ctx context.Context, group, sender, message uuid.UUID, content string) (*Sent, error) {
	return s.send(ctx, outgoing{KindGroup, group, sender, message, content})
}

// PinMessage pins a message of the group, the newest pin last, and returns all pins. A pinned one stays where it is.
// ErrMessageNotFound, ErrPinLimit: then the transaction is spoilt. Hold the group first.
func (s *Store) PinMessage(ctx context.Context, group, message uuid.UUID) (UUIDs, error) {
	found, err := gorm.G[int64](s.db).Raw(`SELECT count(*) FROM messages WHERE id = ? AND conversation_id = ?`, message, group).Take(ctx)
	if err != nil {
		return nil, fmt.Errorf("find message: %w", err)
	}
	if found == 0 {
		return nil, ErrMessageNotFound
	}
	pinned, err := gorm.G[Conversation](s.db).Raw(`
		UPDATE conversations SET pinned = CASE WHEN @message = ANY (pinned) THEN pinned ELSE array_append(pinned, CAST(@message AS uuid)) END
		WHERE id = @group RETURNING pinned`, map[string]any{"message": message, "group": group}).Take(ctx)
	if errors.Is(err, gorm.ErrCheckConstraintViolated) { // how many there may be is the schema's to say
		return nil, ErrPinLimit
	}
	if err != nil {
		return nil, fmt.Errorf("pin message: %w", err)
	}
	return pinned.Pinned, nil
}

// TransferGroupChat makes another member the admin. ErrAgentNotFound, ErrBanned, ErrSuccessorNotMember. Hold the group first.
func (s *Store) TransferGroupChat(ctx context.Context, group, to uuid.UUID) error {
	if err := s.CheckAgents(ctx, []uuid.UUID{to}); err != nil {
		return err
	}
	seat, err := s.Seat(ctx, KindGroup, group, to)
	switch {
	case err != nil:
		return err
	case seat.Status == StatusBanned:
		return ErrBanned
	case seat.Status != StatusMember:
		return ErrSuccessorNotMember
	}
	return s.setAdmin(ctx, group, to)
}
