package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// call is one call of an operation, and the receiver of its handler.
type call struct {
	server *Server
	tx     *store.Store // the transaction, or for what is read only the database
	caller *store.Agent // nil for operations without security
	paid   payment.Paid // zero for free operations
}

// Who may do what. Each function loads a conversation and checks the caller's right in one step, so that a handler
// cannot forget. Outsiders get 403, never a 404: ids are no secrets.
//
// Functions for an admin, and those whose names say so, lock the conversation until the transaction ends: changes of members,
// admin, bans, pins and deletion happen one after the other, and each sees the ones before.

// send writes a message: to the other agent of a private chat, to a group chat as one of its members, to a channel as its
// admin. The store checks that right in the statement that writes, because a ban may come between two statements.
func (c *call) send(ctx context.Context, message store.OutgoingMessage) (*store.Sent, error) {
	return c.tx.SendMessage(ctx, message)
}

// messageForReader returns the message's place if the caller may read it: a member of the chat, a subscriber or the admin
// of the channel.
func (c *call) messageForReader(ctx context.Context, id uuid.UUID) (*store.MessageSeat, error) {
	seat, err := c.tx.MessageSeat(ctx, id, c.caller.ID)
	if err != nil {
		return nil, err
	}
	return seat, c.mayRead(&seat.Seat)
}

// mayRead tells whether the caller reads the conversation: a member of the chat, a subscriber of the channel, or its admin, who
// need not be one.
func (c *call) mayRead(seat *store.Seat) error {
	channel := seat.Kind == store.KindChannel
	switch {
	case seat.Status == store.StatusMember, channel && *seat.AdminID == c.caller.ID:
		return nil
	case seat.Status == store.StatusBanned:
		return store.ErrBanned
	case channel:
		return store.ErrNotSubscriber
	}
	return store.ErrNotMember
}

// forReader returns the conversation if the caller reads it.
func (c *call) forReader(ctx context.Context, kind string, id uuid.UUID) (*store.Seat, error) {
	seat, err := c.forAnyone(ctx, kind, id)
	if err != nil {
		return nil, err
	}
	return seat, c.mayRead(seat)
}

// forAdmin locks the conversation and returns it if the caller is its admin. The admin of a group chat is always a member.
func (c *call) forAdmin(ctx context.Context, kind string, id uuid.UUID) (*store.Seat, error) {
	seat, err := c.lockedForAnyone(ctx, kind, id)
	if err != nil {
		return nil, err
	}
	if kind == store.KindGroup {
		if err := c.mayRead(seat); err != nil {
			return nil, err
		}
	}
	if *seat.AdminID != c.caller.ID {
		return nil, store.ErrNotAdmin
	}
	return seat, nil
}

// lockedForReader locks the conversation and returns it if the caller reads it.
func (c *call) lockedForReader(ctx context.Context, kind string, id uuid.UUID) (*store.Seat, error) {
	if err := c.tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	return c.forReader(ctx, kind, id)
}

// lockedForAnyone locks the conversation and returns it to whoever asks.
func (c *call) lockedForAnyone(ctx context.Context, kind string, id uuid.UUID) (*store.Seat, error) {
	if err := c.tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	return c.forAnyone(ctx, kind, id)
}

// forAnyone returns the conversation to whoever asks: a channel shows itself to all, and an outsider of a group chat may ask
// to be let in.
func (c *call) forAnyone(ctx context.Context, kind string, id uuid.UUID) (*store.Seat, error) {
	return c.tx.Seat(ctx, kind, id, c.caller.ID)
}
