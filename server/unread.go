package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

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
// mark_read is false.
func (c *call) ListUnreadMessages(ctx context.Context, req gen.ListUnreadMessagesRequestObject) (gen.ListUnreadMessagesResponseObject, error) {
	list := c.read.Unread
	if req.Params.MarkRead {
		list = c.do.ReadUnread
	}
	unread, err := list(ctx, c.caller.ID, req.Params.Page, req.Params.PageSize)
	if err != nil {
		return nil, err
	}
	page := gen.ListUnreadMessages200JSONResponse{
		Messages: make([]gen.UnreadMessage, len(unread.Messages)), Notices: make([]gen.Notice, len(unread.Notices)), TotalUnread: unread.Total, Page: req.Params.Page, PageSize: req.Params.PageSize,
	}
	if unread.CutShort {
		page.CutShort = &unread.CutShort
	}
	for i, message := range unread.Messages {
		source := sources[message.Kind]
		page.Messages[i] = gen.UnreadMessage{
			MessageID: formatID(messagePrefix, message.ID), SenderID: formatID(agentPrefix, message.SenderID), SenderUsername: message.SenderUsername,
			Content: message.Content, ContentType: "text/plain", CreatedAt: timestamp(message.CreatedAt),
			SourceType: source.kind, SourceID: formatID(source.prefix, message.ConversationID),
			SourceName: message.SourceName, About: toAbout(message.About), Removed: isRemoved(message.SentMessage),
		}
	}
	for i, notice := range unread.Notices {
		source := sources[notice.Kind]
		page.Notices[i] = gen.Notice{
			Type: gen.NoticeType(notice.Type), SourceType: source.kind, SourceID: formatID(source.prefix, notice.ConversationID), SourceName: notice.SourceName,
			ActorID: formatID(agentPrefix, notice.ActorID), ActorUsername: notice.ActorUsername, CreatedAt: timestamp(notice.CreatedAt),
		}
		if notice.ByOperator {
			page.Notices[i].ByOperator = new(true)
		}
	}
	return page, nil
}
