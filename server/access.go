package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// call is one call of an operation. It is the receiver of the handlers that read, send a message, or mark messages as read. If a
// handler returns an error, its response is ignored.
type call struct {
	server *Server
	read   *store.Reader
	do     store.Actions // nil for free operations
	caller *store.Agent  // nil for operations without security
	paid   payment.Paid  // zero for free operations

	record []byte // what the ledger stores of the response: see recordPage
}

// change is a call that changes more than a shared commit can. It is the receiver of those handlers.
type change struct {
	call
	tx      *store.Tx
	derived derivation // of a call whose response has a secret
}

// Access rules. Each function loads a conversation and checks the right of the caller in one step. An outsider gets
// 403, not 404, because ids are not secret.
//
// Functions for an admin, and those with "locked" in their names, lock the conversation until the transaction ends. So
// changes of members, admin, bans, pins and deletion run one after another, and each sees the changes before it.

// send sends a message: to the other agent of a private chat, to a group chat as a member, to a channel as its admin.
// The store checks this right in the statement that writes, because a ban may be committed between two statements.
func (c *call) send(ctx context.Context, message store.OutgoingMessage) (conversation uuid.UUID, id gen.MessageID, err error) {
	message.ID, message.Sender = newID(), c.caller.ID
	sent, err := c.do.SendMessage(ctx, message)
	if err != nil {
		return uuid.Nil, "", err
	}
	return sent.ConversationID, MessageID(message.ID), nil
}

// messageForReader returns the message with its conversation if the caller may read it.
func (c *call) messageForReader(ctx context.Context, id uuid.UUID) (*store.MessageView, error) {
	view, err := c.read.MessageView(ctx, id, c.caller.ID)
	if err != nil {
		return nil, err
	}
	return view, c.mayRead(&view.ConversationView)
}

// mayRead returns nil if the caller may read the conversation: as a member, as a subscriber, or as the admin of a
// channel, who need not be a subscriber.
func (c *call) mayRead(view *store.ConversationView) error {
	channel := view.Kind == store.KindChannel
	switch {
	case view.Status == store.StatusMember, channel && *view.AdminID == c.caller.ID:
		return nil
	case view.Status == store.StatusBanned:
		return store.ErrBanned
	case channel:
		return store.ErrNotSubscriber
	}
	return store.ErrNotMember
}

// forAnyone returns the conversation to any caller: channels are public, and an outsider may request access to a group chat.
func (c *call) forAnyone(ctx context.Context, kind, id string) (*store.ConversationView, error) {
	return c.read.ConversationView(ctx, kind, conversationID(kind, id), c.caller.ID)
}

// forReader returns the conversation if the caller may read it.
func (c *call) forReader(ctx context.Context, kind, id string) (*store.ConversationView, error) {
	view, err := c.forAnyone(ctx, kind, id)
	if err != nil {
		return nil, err
	}
	return view, c.mayRead(view)
}

// lockedForAnyone locks the conversation and returns it to any caller.
func (c *change) lockedForAnyone(ctx context.Context, kind, id string) (*store.ConversationView, error) {
	if err := c.tx.LockConversation(ctx, conversationID(kind, id)); err != nil {
		return nil, err
	}
	return c.forAnyone(ctx, kind, id)
}

// lockedForReader locks the conversation and returns it if the caller may read it.
func (c *change) lockedForReader(ctx context.Context, kind, id string) (*store.ConversationView, error) {
	view, err := c.lockedForAnyone(ctx, kind, id)
	if err != nil {
		return nil, err
	}
	return view, c.mayRead(view)
}

// forAdmin locks the conversation and returns it if the caller is its admin.
func (c *change) forAdmin(ctx context.Context, kind, id string) (*store.ConversationView, error) {
	view, err := c.lockedForAnyone(ctx, kind, id)
	if err == nil && kind == store.KindGroup {
		err = c.mayRead(view)
	}
	if err == nil && *view.AdminID != c.caller.ID {
		err = store.ErrNotAdmin
	}
	return view, err
}
