package server

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// Messages of private chats, group chats and channels: sending, reading, searching.

// matchesPerPage is the page size of a message search. The contract names it, and callers cannot choose it.
const matchesPerPage = 50

const messageSent = "message sent"

// sendNote sends a private message about a group chat or channel, and returns its chat and id. Why is the type of About.
func (c *change) sendNote(
	ctx context.Context, to uuid.UUID, why, what string, about *store.ConversationView, note *gen.Note,
) (chat uuid.UUID, message gen.MessageID, err error) {
	noun, prefix := "group chat", chatPrefix
	if about.Kind == store.KindChannel {
		noun, prefix = "channel", channelPrefix
	}
	id := formatID(prefix, about.ID)
	name, text := *about.Name, what+" "+noun+` "`+*about.Name+`" (`+id+")."
	if why == store.AboutAccessRequest && !about.IsDiscoverable { // the caller reads the note too
		name, text = id, what+" "+noun+" "+id+"."
	}
	if note != nil {
		text += " " + *note
	}
	return c.send(ctx, store.OutgoingMessage{
		Kind: store.KindPrivate, To: to, Content: text,
		About: &store.About{Type: why, Kind: about.Kind, Source: about.ID, Name: name},
	})
}

// listMessages returns a page of a conversation, newest first, and marks it as read if asked to.
func (c *call) listMessages(
	ctx context.Context, kind, id string, n, page int64, before *gen.MessageID, markRead bool,
) (gen.MessagePage, error) {
	view, err := c.forReader(ctx, kind, id)
	if err != nil {
		return gen.MessagePage{}, err
	}
	found, err := c.do.Messages(ctx, view, n, page, optional(before, messageID), c.paid.Page)
	if err != nil {
		return gen.MessagePage{}, err
	}
	reactions, fitting, err := c.read.PageReactions(ctx, found.Messages, c.paid.Page)
	if err != nil {
		return gen.MessagePage{}, err
	}
	if fitting < len(found.Messages) {
		found.Messages, found.Next = found.Messages[:fitting], &found.Messages[fitting-1].ID
	}
	shown := gen.MessagePage{Total: view.MessageCount(), Page: page, NextBeforeMessageID: optional(found.Next, MessageID)}
	c.recordPage(pageRecord{List: &shown}, found.Messages)
	shown.Messages = toMessages(found.Messages, reactions)
	read := store.ReadRange{Conversation: view.ID}
	if len(found.Messages) > 0 {
		read.Oldest, read.Newest = found.Messages[len(found.Messages)-1].Number, found.Messages[0].Number
	}
	if markRead && view.Quiet {
		err = c.do.MarkFirstRead(ctx, c.caller.ID, read)
	} else if markRead {
		// A page that cannot move the marker costs no lock: it is read already, or leaves out unread messages.
		if read.Newest > view.ReadNumber && read.Oldest-1-view.ReadNumber <= view.UnreadOwn {
			// Last, because it may lock the membership: nothing may wait for a connection while it holds that lock.
			err = c.do.MarkRead(ctx, c.caller.ID, read)
		}
	}
	return shown, err
}

// toMessages adds the reactions to messages of one conversation.
func toMessages(messages []store.SentMessage, reactions map[int64]*store.Reactions) []gen.Message {
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
	return shown
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
	reactions, fitting, err := c.read.PageReactions(ctx, matches.Messages, store.LongPage)
	if err != nil {
		return gen.MessageSearchPage{}, err
	}
	if fitting < len(matches.Messages) {
		matches.Messages, matches.SearchedTo = matches.Messages[:fitting], &matches.Messages[fitting-1].ID
	}
	shown := gen.MessageSearchPage{Count: int64(len(matches.Messages)), Page: page, MatchedAs: gen.MatchedAsRegex,
		NextBeforeMessageID: optional(matches.SearchedTo, MessageID)}
	if literal || matches.Literal {
		shown.MatchedAs = gen.MatchedAsLiteral
	} else if shown.Count == 0 && page == 1 && before == nil {
		shown.Hint = hint(query)
	}
	c.recordPage(pageRecord{Search: &shown}, matches.Messages)
	shown.Messages = toMessages(matches.Messages, reactions)
	return shown, nil
}

// hint says which characters of a query have a special meaning in an expression; nil if none has.
func hint(query string) *string {
	var special []string
	for character := range strings.SplitSeq(query, "") {
		if quoted := "`" + character + "`"; regexp.QuoteMeta(character) != character && !slices.Contains(special, quoted) {
			special = append(special, quoted)
		}
	}
	have := "have"
	switch len(special) {
	case 0:
		return nil
	case 1:
		have = "has"
	}
	return new("the query was matched as a regular expression; " + strings.Join(special, ", ") + " " + have +
		" a special meaning there; send literal: true to search for the text as it is")
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
// mark_read is false. With read_through it marks what an earlier page returned instead. A call that waits has waited (see waitUnread).
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
		list = func(ctx context.Context, agent uuid.UUID, page store.UnreadPage) (*store.Unread, error) {
			return c.do.ReadThrough(ctx, agent, through, page)
		}
	case req.Params.MarkRead:
		list = c.do.ReadUnread
	}
	unread, err := list(ctx, c.caller.ID, store.UnreadPage{Number: req.Params.Page, Size: req.Params.PageSize, Most: c.paid.Page})
	if err != nil {
		return nil, err
	}
	page := gen.ListUnreadMessages200JSONResponse{
		Notices: make([]gen.Notice, len(unread.Notices)), TotalUnread: unread.Total,
		Page: req.Params.Page, PageSize: req.Params.PageSize,
	}
	if page.Page == 1 { // messages of a later page become read only after those before it
		page.Cursor = new(cursorOf(c.caller.ID, unread.Through()))
	}
	if unread.CutShort {
		page.CutShort = &unread.CutShort
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
	c.recordPage(pageRecord{Unread: &page}, sentOf(unread.Messages))
	page.Messages = each(unread.Messages, toUnread)
	return page, nil
}

func toUnread(message store.UnreadMessage) gen.UnreadMessage {
	source := sources[message.Kind]
	return gen.UnreadMessage{
		MessageID: MessageID(message.ID), SenderID: AgentID(message.SenderID), SenderUsername: message.SenderUsername,
		Content: message.Content, ContentType: "text/plain", CreatedAt: timestamp(message.CreatedAt),
		SourceType: source.kind, SourceID: formatID(source.prefix, message.ConversationID),
		SourceName: message.SourceName, ReplyToMessageID: optional(message.ReplyTo, MessageID),
		About: optional(message.About, toAbout), Removed: optional(message.RemovedAt, removed),
	}
}
