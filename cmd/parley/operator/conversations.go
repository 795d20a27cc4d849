package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// conversations gives the operator power over private chats, group chats and channels.
type conversations struct {
	Show    conversationsShow    `cmd:"" help:"Show a conversation, without its messages."`
	Remove  conversationsRemove  `cmd:"" help:"Remove a group chat or channel: nobody can use it until it is restored."`
	Restore conversationsRestore `cmd:"" help:"Restore a group chat or channel that the operator has removed."`
}

type conversationsShow struct {
	Ledger ledger   `embed:""`
	ID     targetID `arg:"" help:"The conversation: chat_…, channel_… or its UUID."`
	JSON   bool     `name:"json" help:"Write one line of JSON."`
}

// shownConversation is a conversation as an operator sees it.
type shownConversation struct {
	*store.Conversation
	removedAt *time.Time
}

var conversationColumns = []columnOf[shownConversation]{
	{"id", func(c shownConversation) any { return server.ConversationID(c.Kind, c.ID) }},
	{"uuid", func(c shownConversation) any { return c.ID.String() }},
	{"kind", func(c shownConversation) any { return c.Kind }},
	{"name", func(c shownConversation) any { return optional(c.Name) }},
	{"description", func(c shownConversation) any { return optional(c.Description) }},
	{"admin_id", func(c shownConversation) any { return ifSet(c.AdminID, server.AgentID) }},
	{"is_discoverable", func(c shownConversation) any { return c.IsDiscoverable }},
	{"members", func(c shownConversation) any { return c.MemberCount }},
	{"messages", func(c shownConversation) any { return c.LastNumber }},
	{"last_message_at", func(c shownConversation) any { return ifSet(c.LastMessageAt, timestamp) }},
	{"created_at", func(c shownConversation) any { return timestamp(c.CreatedAt) }},
	{"deleted_at", func(c shownConversation) any { return ifSet(c.DeletedAt, timestamp) }},
	{"removed_at", func(c shownConversation) any { return ifSet(c.removedAt, timestamp) }},
}

func (c *conversationsShow) Run(ctx context.Context, to console.Console) error {
	return c.Ledger.with(ctx, func(database *store.Store) (err error) {
		shown := shownConversation{}
		if shown.Conversation, err = database.StoredConversation(ctx, c.ID.UUID); err != nil {
			return err
		}
		if shown.removedAt, err = database.RemovedAt(ctx, c.ID.UUID); err != nil {
			return err
		}
		return show(to.Out, c.JSON, conversationColumns, shown)
	})
}

type conversationsRemove struct {
	changes
	ID     targetID `arg:"" help:"The group chat or channel: chat_…, channel_… or its UUID."`
	DryRun bool     `help:"Check whether it can be removed, and change nothing."`
}

func (c *conversationsRemove) Run(ctx context.Context, to console.Console) error {
	return c.with(ctx, func(database *store.Store, by store.Operator) error {
		done := "is removed"
		if by.DryRun = c.DryRun; c.DryRun {
			done = "would be removed"
		}
		if err := database.RemoveConversation(ctx, by, c.ID.UUID); err != nil {
			return err
		}
		_, err := fmt.Fprintf(to.Out, "%s %s\n", c.ID.UUID, done)
		return err
	})
}

type conversationsRestore struct {
	changes
	ID targetID `arg:"" help:"The group chat or channel: chat_…, channel_… or its UUID."`
}

func (c *conversationsRestore) Run(ctx context.Context, to console.Console) error {
	return c.with(ctx, func(database *store.Store, by store.Operator) error {
		if err := database.RestoreConversation(ctx, by, c.ID.UUID); err != nil {
			return err
		}
		_, err := fmt.Fprintf(to.Out, "%s is restored\n", c.ID.UUID)
		return err
	})
}

// messages gives the operator power over messages.
type messages struct {
	Remove messagesRemove `cmd:"" help:"Remove the content of a message. Its id, number, sender, time and reactions stay."`
}

type messagesRemove struct {
	changes
	ID     targetID `arg:"" help:"The message: msg_… or its UUID."`
	DryRun bool     `help:"Say which message it is, and change nothing."`
}

func (m *messagesRemove) Run(ctx context.Context, to console.Console) error {
	return m.with(ctx, func(database *store.Store, by store.Operator) error {
		message, err := database.StoredMessage(ctx, m.ID.UUID)
		if err != nil {
			return err
		}
		described := fmt.Sprintf("message %d of conversation %s, sent by %s at %s",
			message.Number, message.ConversationID, server.AgentID(message.SenderID), timestamp(message.CreatedAt))
		if m.DryRun {
			_, err = fmt.Fprintf(to.Out, "would be removed: %s\n", described)
			return err
		}
		if err := database.RemoveMessage(ctx, by, m.ID.UUID); err != nil {
			return err
		}
		fmt.Fprintf(to.Out, "removed: %s\n", described)
		at, err := settled(ctx, database, to)
		if err != nil {
			return err
		}
		return eraseReads(ctx, database, to, store.StoredReads{Conversation: message.ConversationID, Since: message.CreatedAt}, at)
	})
}
