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
	var members []uuid.UUID
	err := gorm.G[Membership](tx.db).Select("agent_id").Where("conversation_id = ? AND agent_id IN ? AND status = 'member'", group, agents).Scan(ctx, &members)
	if err != nil {
		return fmt.Errorf("look for members: %w", err)
	}
	newcomers := slices.DeleteFunc(slices.Clone(agents), func(agent uuid.UUID) bool { return slices.Contains(members, agent) })
	blocks := gorm.G[Block](tx.db).Where("blocked_id = ? AND blocker_id IN ?", admin, newcomers)
	if err := refuseIf(ctx, ErrBlocked, "look for blocks", blocks); err != nil {
		return err
	}
	if err := tx.Join(ctx, group, newcomers...); err != nil {
		return err
	}
	chat, err := tx.StoredConversation(ctx, group)
	if err != nil {
		return err
	}
	if chat.MemberCount > MemberLimit {
		return ErrMemberLimit
	}
	return tx.notify(ctx, NoticeAdded, group, admin, newcomers)
}

// Unpin removes the pins of the messages. Messages that are not pinned are ignored. Lock the group first.
func (tx *Tx) Unpin(ctx context.Context, group uuid.UUID, messages []uuid.UUID) error {
	if len(messages) == 0 {
		return nil
	}
	chat, err := tx.StoredConversation(ctx, group)
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
	chat, err := tx.StoredConversation(ctx, group)
	if err != nil {
		return nil, err
	}
	if slices.Contains(chat.Pinned, message) {
		return chat.Pinned, nil
	}
	pinned := append(chat.Pinned, message) //nolint:gocritic // of a row that was just loaded
	err = tx.changeConversation(ctx, group, map[string]any{"pinned": pinned})
	if errors.Is(err, gorm.ErrCheckConstraintViolated) { // the schema sets the limit
		return nil, ErrPinLimit
	}
	return pinned, err
}
