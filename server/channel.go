package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// CreateChannel creates a channel with the caller as its admin.
func (c *change) CreateChannel(ctx context.Context, req gen.CreateChannelRequestObject) (gen.CreateChannelResponseObject, error) {
	id := newID()
	err := c.tx.CreateConversation(ctx, store.KindChannel, id, c.caller.ID, req.Body.Name, req.Body.Description, req.Body.IsDiscoverable)
	return gen.CreateChannel200JSONResponse{Success: true, ChannelID: formatID(channelPrefix, id), Message: "channel created"}, err
}

// GetChannel returns a channel to any caller. Only subscribers and the admin see who the admin is.
func (c *call) GetChannel(ctx context.Context, req gen.GetChannelRequestObject) (gen.GetChannelResponseObject, error) {
	channel, err := c.forAnyone(ctx, store.KindChannel, req.Body.ChannelID)
	if err != nil {
		return nil, err
	}
	info := gen.GetChannel200JSONResponse{
		ChannelID: req.Body.ChannelID, Name: *channel.Name, Description: channel.Description, SubscriberCount: channel.MemberCount,
		IsDiscoverable: channel.IsDiscoverable, CreatedAt: timestamp(channel.CreatedAt),
	}
	if channel.Status == store.StatusMember || *channel.AdminID == c.caller.ID {
		info.AdminID = optional(channel.AdminID, AgentID)
	}
	info.BannedAgentIds, err = c.banned(ctx, channel.ID, *channel.AdminID)
	return info, err
}

// EditChannel changes the fields that are present: name and description, subscribers, bans. All changes happen, or none.
func (c *change) EditChannel(ctx context.Context, req gen.EditChannelRequestObject) (gen.EditChannelResponseObject, error) {
	err := c.edit(ctx, store.KindChannel, req.Body.ChannelID, edit{
		name: req.Body.Name, description: req.Body.Description, isDiscoverable: req.Body.IsDiscoverable,
		remove: each(req.Body.RemoveSubscriberIds, agentID), ban: each(req.Body.BanAgentIds, agentID),
		unban: each(req.Body.UnbanAgentIds, agentID),
	})
	return gen.EditChannel200JSONResponse{Success: true, Message: "channel updated"}, err
}

// DeleteChannel deletes a channel.
func (c *change) DeleteChannel(ctx context.Context, req gen.DeleteChannelRequestObject) (gen.DeleteChannelResponseObject, error) {
	channel, err := c.forAdmin(ctx, store.KindChannel, req.Body.ChannelID)
	if err != nil {
		return nil, err
	}
	err = c.tx.DeleteConversation(ctx, store.KindChannel, channel.ID, c.caller.ID)
	return gen.DeleteChannel200JSONResponse{Success: true, Message: "channel deleted"}, err
}

// SendChannelMessage sends a message to all subscribers.
func (c *call) SendChannelMessage(
	ctx context.Context, req gen.SendChannelMessageRequestObject,
) (gen.SendChannelMessageResponseObject, error) {
	message := store.OutgoingMessage{Kind: store.KindChannel, To: idOf(channelPrefix, req.Body.ChannelID), Content: req.Body.Content,
		ReplyTo: optional(req.Body.ReplyToMessageID, messageID)}
	_, id, err := c.send(ctx, message)
	return gen.SendChannelMessage200JSONResponse{Success: true, MessageID: id, Message: messageSent}, err
}

// SubscribeChannel makes the caller a subscriber, unless it is banned.
func (c *change) SubscribeChannel(ctx context.Context, req gen.SubscribeChannelRequestObject) (gen.SubscribeChannelResponseObject, error) {
	channel, err := c.lockedForAnyone(ctx, store.KindChannel, req.Body.ChannelID)
	if err != nil {
		return nil, err
	}
	if channel.Status == store.StatusBanned {
		return nil, store.ErrBanned
	}
	err = c.tx.Join(ctx, channel.ID, c.caller.ID)
	return gen.SubscribeChannel200JSONResponse{Success: true, Message: "subscribed"}, err
}

// UnsubscribeChannel ends the subscription of the caller. A ban stays.
func (c *change) UnsubscribeChannel(
	ctx context.Context, req gen.UnsubscribeChannelRequestObject,
) (gen.UnsubscribeChannelResponseObject, error) {
	channel, err := c.lockedForAnyone(ctx, store.KindChannel, req.Body.ChannelID)
	if err != nil {
		return nil, err
	}
	err = c.tx.Leave(ctx, channel.ID, c.caller.ID)
	return gen.UnsubscribeChannel200JSONResponse{Success: true, Message: "unsubscribed"}, err
}

// ListChannelMessages returns a page of the channel's messages, newest first, and marks them read.
func (c *call) ListChannelMessages(
	ctx context.Context, req gen.ListChannelMessagesRequestObject,
) (gen.ListChannelMessagesResponseObject, error) {
	page, err := c.listMessages(ctx, store.KindChannel, req.Body.ChannelID, req.Body.N, req.Body.Page, req.Body.BeforeMessageID,
		req.Body.MarkRead)
	return gen.ListChannelMessages200JSONResponse(page), err
}

// TransferChannel makes another agent the admin, and sends it a note if the request has one.
func (c *change) TransferChannel(ctx context.Context, req gen.TransferChannelRequestObject) (gen.TransferChannelResponseObject, error) {
	channel, err := c.forAdmin(ctx, store.KindChannel, req.Body.ChannelID)
	if err != nil {
		return nil, err
	}
	err = c.transfer(ctx, channel, agentID(req.Body.NewAdminAgentID), req.Body.Message)
	return gen.TransferChannel200JSONResponse{Success: true, Message: "channel transferred"}, err
}

// SearchChannels finds discoverable channels.
func (c *call) SearchChannels(ctx context.Context, req gen.SearchChannelsRequestObject) (gen.SearchChannelsResponseObject, error) {
	channels, err := c.read.SearchConversations(ctx, store.KindChannel, withoutInvisible(req.Body.Query), req.Body.PageSize, req.Body.Page)
	found := each(channels, func(channel store.FoundConversation) gen.ChannelSearchItem {
		return gen.ChannelSearchItem{
			ChannelID: formatID(channelPrefix, channel.ID), Name: channel.Name, Description: channel.Description,
			SubscriberCount: channel.MemberCount, CreatedAt: timestamp(channel.CreatedAt),
		}
	})
	return gen.SearchChannels200JSONResponse{Channels: found, Count: int64(len(found)), Page: req.Body.Page}, err
}

// SearchChannelMessages searches a channel for its subscribers and its admin.
func (c *call) SearchChannelMessages(
	ctx context.Context, req gen.SearchChannelMessagesRequestObject,
) (gen.SearchChannelMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindChannel, req.Body.ChannelID, req.Body.Query, req.Body.Literal, req.Body.Page,
		req.Body.BeforeMessageID)
	return gen.SearchChannelMessages200JSONResponse(page), err
}
