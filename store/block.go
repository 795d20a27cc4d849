package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Block keeps BlockedID away from BlockerID.
type Block struct {
	BlockerID uuid.UUID
	BlockedID uuid.UUID
	CreatedAt time.Time
}

// shownDescription is the description of the agent a as @viewer sees it: empty where a has blocked the viewer.
const shownDescription = `CASE WHEN EXISTS (SELECT FROM blocks b WHERE b.blocker_id = a.id AND b.blocked_id = @viewer)
			THEN '' ELSE a.description END AS description`

// BlockAgent blocks an agent; blocking it twice changes nothing. ErrBlockSelf, ErrAgentNotFound.
func (s *Store) BlockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	if blocker == blocked {
		return ErrBlockSelf
	}
	return s.changeBlock(ctx, `
		WITH block AS (
			INSERT INTO blocks (blocker_id, blocked_id, created_at)
			SELECT @blocker, id, clock_timestamp() FROM agents WHERE id = @blocked ON CONFLICT (blocker_id, blocked_id) DO NOTHING
		)
		SELECT id FROM agents WHERE id = @blocked`, blocker, blocked)
}

// UnblockAgent ends a block; where there is none nothing changes. ErrAgentNotFound.
func (s *Store) UnblockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	return s.changeBlock(ctx, `
		WITH block AS (DELETE FROM blocks WHERE blocker_id = @blocker AND blocked_id = @blocked)
		SELECT id FROM agents WHERE id = @blocked`, blocker, blocked)
}

// changeBlock runs a statement that returns the blocked agent's id, if there is such an agent.
func (s *Store) changeBlock(ctx context.Context, statement string, blocker, blocked uuid.UUID) error {
	found, err := gorm.G[uuid.UUID](s.db).Raw(statement, map[string]any{"blocker": blocker, "blocked": blocked}).Find(ctx)
	if err != nil {
		return fmt.Errorf("change block: %w", err)
	}
	if len(found) == 0 {
		return ErrAgentNotFound
	}
	return nil
}

// CheckBlocks returns ErrBlocked if to has blocked from, and ErrBlocking if from has blocked to. Where both have, it is
// ErrBlocked: to unblock the other would cost from money and help nothing.
func (s *Store) CheckBlocks(ctx context.Context, from, to uuid.UUID) error {
	blockers, err := gorm.G[uuid.UUID](s.db).Raw(`
		SELECT blocker_id FROM blocks WHERE blocker_id = @from AND blocked_id = @to
		UNION ALL
		SELECT blocker_id FROM blocks WHERE blocker_id = @to AND blocked_id = @from`, map[string]any{"from": from, "to": to}).Find(ctx)
	if err != nil {
		return fmt.Errorf("look for blocks: %w", err)
	}
	switch {
	case slices.Contains(blockers, to):
		return ErrBlocked
	case len(blockers) > 0:
		return ErrBlocking
	}
	return nil
}
