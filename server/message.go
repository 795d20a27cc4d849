package server

import (
	"context"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// Messages of private chats, group chats and channels: sending, reading, searching.

// matchesPerPage is the page size of a message search. The contract names it, and callers cannot choose it.
const matchesPerPage = 50

const messageSent = "message sent"

// sendNote sends a private message about a group chat or channel, and returns the chat. Why is the type of About.
func (c *change) sendNote(
	ctx context.Context, to uuid.UUID, why, what string, about *store.ConversationView, note *gen.Note,
) (chat uuid.UUID, err error) {
	noun, prefix := "group chat", chatPrefix
	if about.Kind == store.KindChannel {
		noun, prefix = "channel", channelPrefix
	}
	text := what + " " + noun + ` "` + *about.Name + `" (` + formatID(prefix, about.ID) + ")."
	if note != nil {
		text += " " + *note
	}
	chat, _, err = c.send(ctx, store.OutgoingMessage{
		Kind: store.KindPrivate, To: to, Content: text,
		About: &store.About{Type: why, Kind: about.Kind, Source: about.ID, Name: *about.Name},
	})
	return chat, err
}

// listMessages returns a page of a conversation, newest first, and marks it as read if asked to.
func (c *call) listMessages(
	ctx context.Context, kind, id string, n, page int64, before *gen.MessageID, markRead bool,
) (gen.MessagePage, error) {
	view, err := c.forReader(ctx, kind, id)
	if err != nil {
		return gen.MessagePage{}, err
	}
	found, err := c.do.Messages(ctx, view, n, page, optional(before, messageID))
	if err != nil {
		return gen.MessagePage{}, err
	}
	shown, err := c.toMessages(ctx, view.ID, found.Messages)
	if err != nil {
		return gen.MessagePage{}, err
	}
	if len(found.Messages) > 0 && markRead {
		read := store.ReadRange{Conversation: view.ID, Oldest: found.Messages[len(found.Messages)-1].Number, Newest: found.Messages[0].Number}
		// A page that cannot move the marker costs no lock: it is read already, or leaves out unread messages.
		if read.Newest > view.ReadNumber && read.Oldest-1-view.ReadNumber <= view.UnreadOwn {
			// Last, because it may lock the membership: nothing may wait for a connection while it holds that lock.
			err = c.do.MarkRead(ctx, c.caller.ID, read)
		}
	}
	return gen.MessagePage{Messages: shown, Total: view.MessageCount(), Page: page, NextBeforeMessageID: optional(found.Next, MessageID)}, err
}

// toMessages adds the reactions to messages of one conversation.
func (c *call) toMessages(ctx context.Context, conversation uuid.UUID, messages []store.SentMessage) ([]gen.Message, error) {
	reactions, err := c.read.Reactions(ctx, conversation, messages)
	if err != nil {
		return nil, err
	}
	shown := make([]gen.Message, len(messages))
	for i, message := range messages {
		shown[i] = gen.Message{
			MessageID: MessageID(message.ID), SenderID: AgentID(message.SenderID), SenderUsername: message.SenderUsername,
			Content: message.Content, ContentType: "text/plain", CreatedAt: timestamp(message.CreatedAt),
			Reactions: []gen.Reaction{}, ReactionCounts: map[string]int64{}, ReplyToMessageID: optional(message.ReplyTo, MessageID),
			About: optional(message.About, toAbout), Removed: optional(message.RemovedAt, removed),
		}
		if of := reactions[message.Number]; of != nil {
			shown[i].ReactionCounts = of.Counts
			shown[i].Reactions = each(of.Newest, toReaction)
		}
	}
	return shown, nil
}

func toReaction(reaction store.NamedReaction) gen.Reaction {
	return gen.Reaction{
		AgentID: AgentID(reaction.AgentID), Username: reaction.Username, Emoji: reaction.Emoji, CreatedAt: timestamp(reaction.CreatedAt),
	}
}

// removed is the field removed of a message: absent unless the operator removed the content.
func removed(time.Time) bool { return true }

func toAbout(about store.About) gen.MessageAbout {
	source := sources[about.Kind]
	return gen.MessageAbout{
		Type: gen.MessageAboutType(about.Type), SourceType: source.kind, SourceID: formatID(source.prefix, about.Source), SourceName: about.Name,
	}
}

// searchMessages returns a page of the messages that match the query, newest first. It does not mark them as read.
func (c *call) searchMessages(
	ctx context.Context, kind, id, query string, literal bool, page int64, before *gen.MessageID,
) (gen.MessageSearchPage, error) {
	view, err := c.forReader(ctx, kind, id)
	if err != nil {
		return gen.MessageSearchPage{}, err
	}
	if literal {
		query = regexp.QuoteMeta(query)
	}
	matches, err := c.read.SearchMessages(ctx, view, query, matchesPerPage, page, optional(before, messageID))
	if err != nil {
		return gen.MessageSearchPage{}, err
	}
	shown, err := c.toMessages(ctx, view.ID, matches.Messages)
	matchedAs := gen.MatchedAsRegex
	if literal || matches.Literal {
		matchedAs = gen.MatchedAsLiteral
	}
	return gen.MessageSearchPage{
		Messages: shown, Count: int64(len(shown)), Page: page, MatchedAs: matchedAs, NextBeforeMessageID: optional(matches.SearchedTo, MessageID),
	}, err
}

// sources maps kinds of conversations to the source types of the contract.
var sources = map[string]struct {
	kind   gen.SourceType
	prefix string
}{
	store.KindPrivate: {gen.SourceTypePrivateChat, chatPrefix},
	store.KindGroup:   {gen.SourceTypeGroupChat, chatPrefix},
	store.KindChannel: {gen.SourceTypeChannel, channelPrefix},
}

// ListUnreadMessages returns the unread messages of the caller, oldest first, and its notices, and marks both as read unless
// mark_read is false. With read_through it marks what an earlier page returned instead. A call that waits has waited (see checkPayment).
func (c *call) ListUnreadMessages(
	ctx context.Context, req gen.ListUnreadMessagesRequestObject,
) (gen.ListUnreadMessagesResponseObject, error) {
	list := c.read.Unread
	switch {
	case req.Params.ReadThrough != nil:
		through, err := parseCursor(c.caller.ID, *req.Params.ReadThrough)
		if err != nil {
			return nil, err
		}
		list = func(ctx context.Context, agent uuid.UUID, page, size int64) (*store.Unread, error) {
			return c.do.ReadThrough(ctx, agent, through, page, size)
		}
	case req.Params.MarkRead:
		list = c.do.ReadUnread
	}
	unread, err := list(ctx, c.caller.ID, req.Params.Page, req.Params.PageSize)
	if err != nil {
		return nil, err
	}
	page := gen.ListUnreadMessages200JSONResponse{
		Messages: make([]gen.UnreadMessage, len(unread.Messages)), Notices: make([]gen.Notice, len(unread.Notices)), TotalUnread: unread.Total,
		Page: req.Params.Page, PageSize: req.Params.PageSize, Cursor: new(cursorOf(c.caller.ID, unread.Through())),
	}
	if unread.CutShort {
		page.CutShort = &unread.CutShort
	}
	for i, message := range unread.Messages {
		source := sources[message.Kind]
		page.Messages[i] = gen.UnreadMessage{
			MessageID: MessageID(message.ID), SenderID: AgentID(message.SenderID), SenderUsername: message.SenderUsername,
			Content: message.Content, ContentType: "text/plain", CreatedAt: timestamp(message.CreatedAt),
			SourceType: source.kind, SourceID: formatID(source.prefix, message.ConversationID),
			SourceName: message.SourceName, ReplyToMessageID: optional(message.ReplyTo, MessageID),
			About: optional(message.About, toAbout), Removed: optional(message.RemovedAt, removed),
		}
	}
	for i, notice := range unread.Notices {
		source := sources[notice.Kind]
		page.Notices[i] = gen.Notice{
			Type: gen.NoticeType(notice.Type), SourceType: source.kind, SourceID: formatID(source.prefix, notice.ConversationID),
			SourceName: notice.SourceName,
			ActorID:    AgentID(notice.ActorID), ActorUsername: notice.ActorUsername, CreatedAt: timestamp(notice.CreatedAt),
		}
		if notice.ByOperator {
			page.Notices[i].ByOperator = new(true)
		}
	}
	return page, nil
}
