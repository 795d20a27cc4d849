package store

import (
	"context"

	"github.com/google/uuid"
)

// SendChannelMessage appends a message of the channel's admin in one round trip, whatever the number of subscribers:
// what is unread for them follows from the channel's counter. ErrChannelNotFound, ErrDeleted, ErrNotAdmin.
func (s *Store) SendChannelMessage(ctx context.Context, channel, sender, message uuid.UUID, content string) (*Sent, error) {
	sent, err := s.send(ctx, outgoing{KindChannel, channel, sender, message, content})
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
	if err := s.setAdmin(ctx, channel, to); err != nil {
		return err
	}
	return s.Join(ctx, channel, from)
}
