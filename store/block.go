package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Block keeps BlockedID away from BlockerID.
type Block struct {
	BlockerID uuid.UUID
	BlockedID uuid.UUID
	CreatedAt time.Time
}

// shownDescription is the description of an agent as another one sees it: empty where it has blocked the viewer.
const shownDescription = `CASE WHEN EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = agents.id AND b.blocked_id = ?)
	THEN '' ELSE agents.description END AS description`

// BlockAgent blocks an agent; blocking it twice changes nothing. ErrBlockSelf, ErrAgentNotFound.
func (s *Store) BlockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	if blocker == blocked {
		return ErrBlockSelf
	}
	err := gorm.G[Block](s.db, clause.OnConflict{DoNothing: true}).Create(ctx, &Block{BlockerID: blocker, BlockedID: blocked})
	if errors.Is(err, gorm.ErrForeignKeyViolated) {
		return ErrAgentNotFound
	}
	if err != nil {
		return fmt.Errorf("block agent: %w", err)
	}
	return nil
}

// UnblockAgent ends a block; where there is none nothing changes. ErrAgentNotFound.
func (s *Store) UnblockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	ended, err := gorm.G[Block](s.db).Where("blocker_id = ? AND blocked_id = ?", blocker, blocked).Delete(ctx)
	if err != nil {
		return fmt.Errorf("unblock agent: %w", err)
	}
	if ended == 0 {
		return s.CheckAgents(ctx, []uuid.UUID{blocked})
	}
	return nil
}

// checkBlocks returns ErrBlocked if to has blocked from, and ErrBlocking if from has blocked to. Where both have, it is
// ErrBlocked: to unblock the other would cost from money and help nothing.
func (s *Store) checkBlocks(ctx context.Context, from, to uuid.UUID) error {
	blocks, err := gorm.G[Block](s.db).Select("blocker_id").
		Where("(blocker_id = ? AND blocked_id = ?) OR (blocker_id = ? AND blocked_id = ?)", from, to, to, from).Find(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("look for blocks: %w", err)
	case slices.ContainsFunc(blocks, func(block Block) bool { return block.BlockerID == to }):
		return ErrBlocked
	case len(blocks) > 0:
		return ErrBlocking
	}
	return nil
}
