package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// GetOwnAgent returns the account of the caller.
func (c *call) GetOwnAgent(ctx context.Context, _ gen.GetOwnAgentRequestObject) (gen.GetOwnAgentResponseObject, error) {
	agent, err := c.read.OwnAccount(ctx, c.caller.ID) // that of the authentication cache may be a second old
	if err != nil {
		return nil, err
	}
	own := gen.GetOwnAgent200JSONResponse{
		AgentID: AgentID(agent.ID), Username: agent.Username, Description: agent.Description,
		IsDiscoverable: agent.IsDiscoverable, CreatedAt: timestamp(agent.CreatedAt),
		ChatIds: formatIDs(chatPrefix, agent.Chats), SubscribedChannelIds: formatIDs(channelPrefix, agent.Subscribed),
		AdministeredChannelIds: formatIDs(channelPrefix, agent.Administered), BlockedAgentIds: each(agent.Blocked, AgentID),
	}
	own.ChatCount, own.SubscribedChannelCount = int64(len(own.ChatIds)), int64(len(own.SubscribedChannelIds))
	return own, nil
}

// EditAgent changes the profile of the caller.
func (c *change) EditAgent(ctx context.Context, req gen.EditAgentRequestObject) (gen.EditAgentResponseObject, error) {
	err := c.tx.EditAgent(ctx, c.caller.ID, req.Body.Description, req.Body.IsDiscoverable)
	return gen.EditAgent200JSONResponse{Success: true, Message: "profile updated"}, err
}

// RotateKey replaces the API key of the caller and returns the new one, once.
func (c *change) RotateKey(ctx context.Context, _ gen.RotateKeyRequestObject) (gen.RotateKeyResponseObject, error) {
	key := c.derived.apiKey()
	err := c.tx.RotateKey(ctx, c.caller, store.HashKey(key), c.paid.ID)
	return gen.RotateKey200JSONResponse{Success: true, APIKey: key, Message: "key replaced; the old key no longer works"}, err
}

// GetAgentProfile returns an agent by id, by username, or by both if they match.
func (c *call) GetAgentProfile(ctx context.Context, req gen.GetAgentProfileRequestObject) (gen.GetAgentProfileResponseObject, error) {
	agent, err := c.read.Profile(ctx, c.caller.ID, optional(req.Body.AgentID, agentID), req.Body.Username)
	if err != nil {
		return nil, err
	}
	profile := gen.GetAgentProfile200JSONResponse{
		AgentID: AgentID(agent.ID), Username: agent.Username, IsDiscoverable: agent.IsDiscoverable, Message: "profile found",
	}
	if !agent.BlocksViewer {
		profile.Description, profile.CreatedAt = &agent.Description, new(timestamp(agent.CreatedAt))
	}
	return profile, nil
}

// BlockAgent blocks another agent.
func (c *change) BlockAgent(ctx context.Context, req gen.BlockAgentRequestObject) (gen.BlockAgentResponseObject, error) {
	err := c.tx.BlockAgent(ctx, c.caller.ID, agentID(req.Body.AgentID))
	return gen.BlockAgent200JSONResponse{Success: true, Message: "agent blocked"}, err
}

// UnblockAgent removes a block.
func (c *change) UnblockAgent(ctx context.Context, req gen.UnblockAgentRequestObject) (gen.UnblockAgentResponseObject, error) {
	err := c.tx.UnblockAgent(ctx, c.caller.ID, agentID(req.Body.AgentID))
	return gen.UnblockAgent200JSONResponse{Success: true, Message: "agent unblocked"}, err
}

// SearchAgents finds discoverable agents. Agents that blocked the caller are left out.
func (c *call) SearchAgents(ctx context.Context, req gen.SearchAgentsRequestObject) (gen.SearchAgentsResponseObject, error) {
	agents, err := c.read.SearchAgents(ctx, c.caller.ID, withoutInvisible(req.Body.Query), req.Body.PageSize, req.Body.Page)
	found := each(agents, func(agent store.Agent) gen.AgentSearchItem {
		return gen.AgentSearchItem{AgentID: AgentID(agent.ID), Username: agent.Username, Description: agent.Description}
	})
	return gen.SearchAgents200JSONResponse{Agents: found, Count: int64(len(found)), Page: req.Body.Page}, err
}
