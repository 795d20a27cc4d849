package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// CreateChannel opens a channel. Its admin is not subscribed by that.
func (s *Store) CreateChannel(ctx context.Context, id, admin uuid.UUID, name string, description *string, isDiscoverable bool) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `
		INSERT INTO conversations (id, kind, name, description, admin_id, is_discoverable, created_at)
		VALUES (?, 'channel', ?, ?, ?, ?, clock_timestamp())`, id, name, description, admin, isDiscoverable)
	if err != nil {
		return fmt.Errorf("create channel: %w", err)
	}
	return nil
}

// EditChannel changes what is not nil.
func (s *Store) EditChannel(ctx context.Context, id uuid.UUID, name, description *string, isDiscoverable *bool) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `
		UPDATE conversations SET name = coalesce(?, name), description = coalesce(?, description), is_discoverable = coalesce(?, is_discoverable)
		WHERE id = ?`, name, description, isDiscoverable, id)
	if err != nil {
		return fmt.Errorf("edit channel: %w", err)
	}
	return nil
}

// DeleteChannel ends a channel; its row, subscriptions and messages stay. Hold the channel first.
func (s *Store) DeleteChannel(ctx context.Context, id uuid.UUID) error {
	err := gorm.G[Conversation](s.db).Exec(ctx, `UPDATE conversations SET deleted_at = clock_timestamp() WHERE id = ?`, id)
	if err != nil {
		return fmt.Errorf("delete channel: %w", err)
	}
	return nil
}

// SendChannelMessage appends a message of the channel's admin in one round trip, whatever the number of subscribers:
// what is unread for them follows from the channel's counter. ErrChannelNotFound, ErrDeleted, ErrNotAdmin.
func (s *Store) SendChannelMessage(ctx context.Context, channel, sender, message uuid.UUID, content string) (*Sent, error) {
	sent, err := s.send(ctx, `WHERE c.id = @channel AND c.kind = 'channel' AND c.deleted_at IS NULL AND c.admin_id = @sender`,
		map[string]any{"channel": channel, "sender": sender, "message": message, "content": content})
	if sent != nil || err != nil {
		return sent, err
	}
	if _, err := s.Seat(ctx, KindChannel, channel, sender); err != nil {
		return nil, err
	}
	return nil, ErrNotAdmin // even if a transfer has just made the sender the admin: when it sent it was not
}

// TransferChannel makes another agent the admin, and the former admin a subscriber. ErrAgentNotFound, ErrBanned. Hold the
// channel first.
func (s *Store) TransferChannel(ctx context.Context, channel, from, to uuid.UUID) error {
	if err := s.CheckAgents(ctx, []uuid.UUID{to}); err != nil {
		return err
	}
	seat, err := s.Seat(ctx, KindChannel, channel, to)
	if err != nil {
		return err
	}
	if seat.Status == StatusBanned {
		return ErrBanned
	}
	if err := gorm.G[Conversation](s.db).Exec(ctx, `UPDATE conversations SET admin_id = ? WHERE id = ?`, to, channel); err != nil {
		return fmt.Errorf("transfer channel: %w", err)
	}
	return s.Join(ctx, channel, from)
}
