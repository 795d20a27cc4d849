package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// AddGroupMembers makes existing agents members, in this order, on behalf of admin, and notifies them. Agents that are already
// members stay unchanged, even if they have blocked the admin. It returns ErrBlocked, ErrBanned or ErrMemberLimit. Lock the
// group first.
func (tx *Tx) AddGroupMembers(ctx context.Context, group, admin uuid.UUID, agents []uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	members, err := gorm.G[Membership](tx.db).Select("agent_id").
		Where("conversation_id = ? AND agent_id IN ? AND status = 'member'", group, agents).Find(ctx)
	if err != nil {
		return fmt.Errorf("look for members: %w", err)
	}
	newcomers := slices.DeleteFunc(slices.Clone(agents), func(agent uuid.UUID) bool {
		return slices.ContainsFunc(members, func(member Membership) bool { return member.AgentID == agent })
	})
	blocks, err := gorm.G[Block](tx.db).Where("blocked_id = ? AND blocker_id IN ?", admin, newcomers).Count(ctx, "*")
	if err != nil {
		return fmt.Errorf("look for blocks: %w", err)
	}
	if blocks > 0 {
		return ErrBlocked
	}
	if err := tx.Join(ctx, group, newcomers...); err != nil {
		return err
	}
	chat, err := tx.loadConversation(ctx, group)
	if err != nil {
		return err
	}
	if chat.MemberCount > MemberLimit {
		return ErrMemberLimit
	}
	return tx.notify(ctx, NoticeAdded, group, admin, newcomers)
}

// loadConversation returns a conversation that is known to exist.
func (r *Reader) loadConversation(ctx context.Context, id uuid.UUID) (Conversation, error) {
	conversation, err := gorm.G[Conversation](r.db).Where("id = ?", id).Take(ctx)
	if err != nil {
		return conversation, fmt.Errorf("load conversation: %w", err)
	}
	return conversation, nil
}

// Unpin removes the pins of the messages. Messages that are not pinned are ignored. Lock the group first.
func (tx *Tx) Unpin(ctx context.Context, group uuid.UUID, messages []uuid.UUID) error {
	if len(messages) == 0 {
		return nil
	}
	chat, err := tx.loadConversation(ctx, group)
	if err != nil {
		return err
	}
	pinned := slices.DeleteFunc(chat.Pinned, func(pin uuid.UUID) bool { return slices.Contains(messages, pin) })
	return tx.changeConversation(ctx, group, map[string]any{"pinned": pinned})
}

// PinMessage pins a message of the group and returns all pins, the newest last. A message that is already pinned keeps
// its position. It returns ErrMessageNotFound or ErrPinLimit. After ErrPinLimit the transaction is aborted. Lock the
// group first.
func (tx *Tx) PinMessage(ctx context.Context, group, message uuid.UUID) (UUIDs, error) {
	found, err := gorm.G[Message](tx.db).Where("id = ? AND conversation_id = ?", message, group).Count(ctx, "*")
	if err != nil {
		return nil, fmt.Errorf("find message: %w", err)
	}
	if found == 0 {
		return nil, ErrMessageNotFound
	}
	chat, err := tx.loadConversation(ctx, group)
	if err != nil || slices.Contains(chat.Pinned, message) {
		return chat.Pinned, err
	}
	pinned := append(chat.Pinned, message) //nolint:gocritic // of a row that was just loaded
	err = tx.changeConversation(ctx, group, map[string]any{"pinned": pinned})
	if errors.Is(err, gorm.ErrCheckConstraintViolated) { // the schema sets the limit
		return nil, ErrPinLimit
	}
	return pinned, err
}

// TransferGroupChat makes another member the admin and notifies it. It returns ErrAgentNotFound, ErrBanned or ErrSuccessorNotMember.
// Lock the group first.
func (tx *Tx) TransferGroupChat(ctx context.Context, group, from, to uuid.UUID) error {
	if err := tx.CheckAgents(ctx, []uuid.UUID{to}); err != nil {
		return err
	}
	view, err := tx.ConversationView(ctx, KindGroup, group, to)
	switch {
	case err != nil:
		return err
	case view.Status == StatusBanned:
		return ErrBanned
	case view.Status != StatusMember:
		return ErrSuccessorNotMember
	}
	return tx.setAdmin(ctx, group, from, to)
}
