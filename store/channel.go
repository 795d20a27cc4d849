package store

import (
	"context"

	"github.com/google/uuid"
)

// TransferChannel makes another agent the admin and notifies it, and makes the former admin a subscriber. It returns ErrAgentNotFound or
// ErrBanned. Lock the channel first.
func (tx *Tx) TransferChannel(ctx context.Context, channel, from, to uuid.UUID) error {
	if err := tx.CheckAgents(ctx, []uuid.UUID{to}); err != nil {
		return err
	}
	view, err := tx.ConversationView(ctx, KindChannel, channel, to)
	if err != nil {
		return err
	}
	if view.Status == StatusBanned {
		return ErrBanned
	}
	if err := tx.setAdmin(ctx, channel, from, to); err != nil {
		return err
	}
	return tx.Join(ctx, channel, from)
}
