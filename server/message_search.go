package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// SearchPrivateMessages looks through a private chat for its members.
func (c *call) SearchPrivateMessages(ctx context.Context, req gen.SearchPrivateMessagesRequestObject) (gen.SearchPrivateMessagesResponseObject, error) {
	chat, err := c.forReader(ctx, store.KindPrivate, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := c.searchMessages(ctx, chat, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchPrivateMessages200JSONResponse(*page), nil
}

// SearchGroupMessages looks through a group chat for its members.
func (c *call) SearchGroupMessages(ctx context.Context, req gen.SearchGroupMessagesRequestObject) (gen.SearchGroupMessagesResponseObject, error) {
	group, err := c.forReader(ctx, store.KindGroup, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := c.searchMessages(ctx, group, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchGroupMessages200JSONResponse(*page), nil
}

// SearchChannelMessages looks through a channel for its subscribers and its admin.
func (c *call) SearchChannelMessages(ctx context.Context, req gen.SearchChannelMessagesRequestObject) (gen.SearchChannelMessagesResponseObject, error) {
	channel, err := c.forReader(ctx, store.KindChannel, idOf(channelPrefix, req.Body.ChannelID))
	if err != nil {
		return nil, err
	}
	page, err := c.searchMessages(ctx, channel, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchChannelMessages200JSONResponse(*page), nil
}
