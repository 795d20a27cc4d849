package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"gorm.io/gorm"
)

// AddGroupMembers makes existing agents members, in this order, on behalf of admin, and notifies them. Members stay unchanged, even if they
// have blocked the admin. It returns ErrBlockedByMembers, ErrAgentBanned or ErrMemberLimit. Lock the group first.
func (tx *Tx) AddGroupMembers(ctx context.Context, group, admin uuid.UUID, agents []uuid.UUID) error {
	if len(agents) == 0 {
		return nil
	}
	newcomers, err := query[uuid.UUID](ctx, tx, `SELECT a.id FROM unnest(CAST(@agents AS uuid[])) WITH ORDINALITY AS a (id, n)
		WHERE a.id NOT IN (
		SELECT agent_id FROM memberships WHERE conversation_id = @group AND agent_id = ANY (@agents) AND status = 'member') ORDER BY a.n`,
		named{"group": group, "agents": agents})
	if err != nil {
		return fmt.Errorf("look for members: %w", err)
	}
	if err := refuseAgents(ctx, tx, ErrBlockedByMembers,
		`SELECT blocker_id FROM blocks WHERE blocked_id = @admin AND blocker_id = ANY (@newcomers) ORDER BY blocker_id`,
		named{"admin": admin, "newcomers": newcomers}); err != nil {
		return err
	}
	if err := tx.join(ctx, group, &admin, newcomers); err != nil {
		return err
	}
	tooMany := gorm.G[Conversation](tx.db).Where("id = ? AND member_count > ?", group, MemberLimit)
	if err := refuseIf(ctx, ErrMemberLimit, "count members", tooMany); err != nil {
		return err
	}
	return tx.notify(ctx, NoticeAdded, group, admin, newcomers)
}

// Unpin removes the pins of the messages. Messages that are not pinned are ignored. Lock the group first.
func (tx *Tx) Unpin(ctx context.Context, group uuid.UUID, messages []uuid.UUID) error {
	if len(messages) == 0 {
		return nil
	}
	_, err := exec(ctx, tx, `UPDATE conversations
		SET pinned = ARRAY(SELECT p.id FROM unnest(pinned) WITH ORDINALITY AS p (id, n) WHERE p.id <> ALL (@messages) ORDER BY p.n)
		WHERE id = @group AND pinned && @messages`, named{"group": group, "messages": messages})
	return wrap("unpin messages", err)
}

// PinMessage pins a message of the group and returns all pins, the newest last. A message that is already pinned keeps its position. It
// returns ErrMessageNotFound or ErrPinLimit, after which the transaction is aborted. Lock the group first.
func (tx *Tx) PinMessage(ctx context.Context, group, message uuid.UUID) (UUIDs, error) {
	pinned, err := query[UUIDs](ctx, tx, `UPDATE conversations SET pinned = CASE WHEN @message = ANY (pinned) THEN pinned
		ELSE pinned || @message END
		WHERE id = @group AND EXISTS (SELECT FROM messages WHERE id = @message AND conversation_id = @group) RETURNING CAST(pinned AS text)`,
		named{"group": group, "message": message})
	if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == "23514" { // a check: the schema sets the limit
		return nil, ErrPinLimit
	}
	all, err := firstOr(pinned, err, "pin message", ErrMessageNotFound)
	if err != nil {
		return nil, err
	}
	return *all, nil
}
