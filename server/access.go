package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// Who may do what. Each function loads a conversation and checks the caller's right in one step, so that a handler
// cannot forget. Outsiders get 403, never a 404: ids are no secrets.

// readersMessage returns the message's place if the caller may read it: a member of the chat, a subscriber or the admin
// of the channel.
func readersMessage(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.MessageSeat, error) {
	seat, err := tx.MessageSeat(ctx, id, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	channel := seat.Kind == store.KindChannel
	switch {
	case seat.Status == store.StatusMember, channel && *seat.AdminID == callerFrom(ctx).ID:
		return seat, nil
	case seat.Status == store.StatusBanned:
		return nil, store.ErrBanned
	case channel:
		return nil, store.ErrNotSubscriber
	}
	return nil, store.ErrNotMember
}

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

// membersGroup returns the group chat if the caller is a member.
func membersGroup(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := tx.Seat(ctx, store.KindGroup, id, callerFrom(ctx).ID)
	switch {
	case err != nil:
		return nil, err
	case seat.Status == store.StatusBanned:
		return nil, store.ErrBanned
	case seat.Status != store.StatusMember:
		return nil, store.ErrNotMember
	}
	return seat, nil
}

// adminsGroup returns the group chat if the caller is its admin, who is always a member.
func adminsGroup(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := membersGroup(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if *seat.AdminID != callerFrom(ctx).ID {
		return nil, store.ErrNotAdmin
	}
	return seat, nil
}

// subscribersChannel returns the channel if the caller is a subscriber or its admin, who need not be one.
func subscribersChannel(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := tx.Seat(ctx, store.KindChannel, id, callerFrom(ctx).ID)
	switch {
	case err != nil:
		return nil, err
	case seat.Status == store.StatusMember, *seat.AdminID == callerFrom(ctx).ID:
		return seat, nil
	case seat.Status == store.StatusBanned:
		return nil, store.ErrBanned
	}
	return nil, store.ErrNotSubscriber
}

// adminsChannel returns the channel if the caller is its admin.
func adminsChannel(ctx context.Context, tx *store.Store, id uuid.UUID) (*store.Seat, error) {
	seat, err := tx.Seat(ctx, store.KindChannel, id, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	if *seat.AdminID != callerFrom(ctx).ID {
		return nil, store.ErrNotAdmin
	}
	return seat, nil
}
