package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// Who may do what. Each function loads a conversation and checks the caller's right in one step, so that a handler
// cannot forget. Outsiders get 403, never a 404: ids are no secrets.

// membersPrivateChat returns the private chat if the caller is one of its two members.
func membersPrivateChat(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := tx.Seat(ctx, store.KindPrivate, id, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	if seat.Status != store.StatusMember {
		return nil, store.ErrNotMember
	}
	return seat, nil
}

// membersGroup returns the group chat if the caller is one of its members.
func membersGroup(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := tx.Seat(ctx, store.KindGroup, id, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	switch seat.Status {
	case store.StatusMember:
		return seat, nil
	case store.StatusBanned:
		return nil, store.ErrBanned
	}
	return nil, store.ErrNotMember
}

// subscribersChannel returns the channel if the caller subscribes to it or is its admin.
func subscribersChannel(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	caller := callerFrom(ctx).ID
	seat, err := tx.Seat(ctx, store.KindChannel, id, caller)
	if err != nil {
		return nil, err
	}
	switch {
	case seat.Status == store.StatusMember, seat.AdminID != nil && *seat.AdminID == caller:
		return seat, nil
	case seat.Status == store.StatusBanned:
		return nil, store.ErrBanned
	}
	return nil, store.ErrNotSubscriber
}
