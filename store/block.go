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

// Block prevents contact: BlockerID has blocked BlockedID.
type Block struct {
	BlockerID uuid.UUID
	BlockedID uuid.UUID
	CreatedAt time.Time
}

// shownDescription is the description of an agent as another agent sees it. It is empty if the agent has blocked the
// viewer.
const shownDescription = `CASE WHEN EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = agents.id AND b.blocked_id = @viewer)
	THEN '' ELSE agents.description END AS description`

// BlockAgent blocks an agent. If the agent is already blocked, nothing changes. It returns ErrBlockSelf or
// ErrAgentNotFound.
func (tx *Tx) BlockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	if blocker == blocked {
		return ErrBlockSelf
	}
	if err := tx.CheckAgents(ctx, []uuid.UUID{blocked}); err != nil {
		return err
	}
	err := gorm.G[Block](tx.db, clause.OnConflict{DoNothing: true}).Create(ctx, &Block{BlockerID: blocker, BlockedID: blocked})
	if errors.Is(err, gorm.ErrForeignKeyViolated) {
		return ErrAgentNotFound
	}
	if err != nil {
		return fmt.Errorf("block agent: %w", err)
	}
	return nil
}

// UnblockAgent removes a block. If there is none, nothing changes. It returns ErrAgentNotFound.
func (tx *Tx) UnblockAgent(ctx context.Context, blocker, blocked uuid.UUID) error {
	ended, err := gorm.G[Block](tx.db).Where("blocker_id = ? AND blocked_id = ?", blocker, blocked).Delete(ctx)
	if err != nil {
		return fmt.Errorf("unblock agent: %w", err)
	}
	if ended == 0 {
		return tx.CheckAgents(ctx, []uuid.UUID{blocked})
	}
	return nil
}

// checkBlocks returns ErrBlocked if to has blocked from, and ErrBlocking if from has blocked to. If both have, it
// returns ErrBlocked, because unblocking costs money and would not help.
func (r *Reader) checkBlocks(ctx context.Context, from, to uuid.UUID) error {
	blocks, err := gorm.G[Block](r.db).Select("blocker_id").
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
