package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// SearchAgents finds discoverable agents. Agents that blocked the caller are left out.
func (c *call) SearchAgents(ctx context.Context, req gen.SearchAgentsRequestObject) (gen.SearchAgentsResponseObject, error) {
	agents, err := c.read.SearchAgents(ctx, c.caller.ID, req.Body.Query, req.Body.PageSize, req.Body.Page)
	if err != nil {
		return nil, err
	}
	page := gen.SearchAgents200JSONResponse{Agents: make([]gen.AgentSearchItem, len(agents)), Count: int64(len(agents)), Page: req.Body.Page}
	for i, agent := range agents {
		page.Agents[i] = gen.AgentSearchItem{AgentID: formatID(agentPrefix, agent.ID), Username: agent.Username, Description: agent.Description}
	}
	return page, nil
}

// SearchGroups finds discoverable group chats.
func (c *call) SearchGroups(ctx context.Context, req gen.SearchGroupsRequestObject) (gen.SearchGroupsResponseObject, error) {
	groups, err := c.read.SearchConversations(ctx, store.KindGroup, req.Body.Query, req.Body.PageSize, req.Body.Page)
	if err != nil {
		return nil, err
	}
	page := gen.SearchGroups200JSONResponse{Groups: make([]gen.GroupSearchItem, len(groups)), Count: int64(len(groups)), Page: req.Body.Page}
	for i, group := range groups {
		page.Groups[i] = gen.GroupSearchItem{
			ChatID: formatID(chatPrefix, group.ID), Name: group.Name, Description: group.Description,
			MemberCount: group.MemberCount, CreatedAt: timestamp(group.CreatedAt),
		}
	}
	return page, nil
}

// SearchChannels finds discoverable channels.
func (c *call) SearchChannels(ctx context.Context, req gen.SearchChannelsRequestObject) (gen.SearchChannelsResponseObject, error) {
	channels, err := c.read.SearchConversations(ctx, store.KindChannel, req.Body.Query, req.Body.PageSize, req.Body.Page)
	if err != nil {
		return nil, err
	}
	page := gen.SearchChannels200JSONResponse{Channels: make([]gen.ChannelSearchItem, len(channels)), Count: int64(len(channels)), Page: req.Body.Page}
	for i, channel := range channels {
		page.Channels[i] = gen.ChannelSearchItem{
			ChannelID: formatID(channelPrefix, channel.ID), Name: channel.Name, Description: channel.Description,
			SubscriberCount: channel.MemberCount, CreatedAt: timestamp(channel.CreatedAt),
		}
	}
	return page, nil
}

// SearchPrivateMessages searches a private chat for its members.
func (c *call) SearchPrivateMessages(ctx context.Context, req gen.SearchPrivateMessagesRequestObject) (gen.SearchPrivateMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindPrivate, idOf(chatPrefix, req.Body.ChatID), req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	return gen.SearchPrivateMessages200JSONResponse(page), err
}

// SearchGroupMessages searches a group chat for its members.
func (c *call) SearchGroupMessages(ctx context.Context, req gen.SearchGroupMessagesRequestObject) (gen.SearchGroupMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindGroup, idOf(chatPrefix, req.Body.ChatID), req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	return gen.SearchGroupMessages200JSONResponse(page), err
}

// SearchChannelMessages searches a channel for its subscribers and its admin.
func (c *call) SearchChannelMessages(ctx context.Context, req gen.SearchChannelMessagesRequestObject) (gen.SearchChannelMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindChannel, idOf(channelPrefix, req.Body.ChannelID), req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	return gen.SearchChannelMessages200JSONResponse(page), err
}
