package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
)

var ErrNotBatched = errors.New("not batched")

type OutgoingMessage struct {
	Kind       string
	To, Sender uuid.UUID
	ID         uuid.UUID
	Content    string
}

func (s *Store) CheckMessage(ctx context.Context, m OutgoingMessage) error {
	return s.DryRun(ctx, func(tx *Store) error { _, err := tx.SendMessage(ctx, m); return err })
}

func (s *Store) SendMessage(ctx context.Context, m OutgoingMessage) (*Sent, error) {
	switch m.Kind {
	case KindPrivate:
		return s.SendPrivateMessage(ctx, m.Sender, m.To, m.ID, m.Content)
	case KindChannel:
		return s.SendChannelMessage(ctx, m.To, m.Sender, m.ID, m.Content)
	}
	for range 2 {
		sent, err := s.SendGroupMessage(ctx, m.To, m.Sender, m.ID, m.Content)
		if sent != nil || err != nil {
			return sent, err
		}
		seat, err := s.Seat(ctx, KindGroup, m.To, m.Sender)
		switch {
		case err != nil:
			return nil, err
		case seat.Status == StatusBanned:
			return nil, ErrBanned
		case seat.Status != StatusMember:
			return nil, ErrNotMember
		}
	}
	return nil, ErrNotMember
}

func (s *Store) PrivateChat(ctx context.Context, a, b uuid.UUID) (uuid.UUID, error) {
	return s.privateChat(ctx, a, b)
}

func (s *Store) SendDelivered(ctx context.Context, m OutgoingMessage, d Delivery) error {
	err := s.sends.do(&batchItem{delivery: &d, out: &outgoing{m.Kind, m.To, m.Sender, m.ID, m.Content}})
	if errors.Is(err, errAlone) {
		return ErrNotBatched
	}
	return err
}
