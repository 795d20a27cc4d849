package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// GetOwnAgent shows the caller its own account.
func (s *Server) GetOwnAgent(ctx context.Context, _ gen.GetOwnAgentRequestObject) (gen.GetOwnAgentResponseObject, error) {
	agent := callerFrom(ctx)
	conversations, err := s.transaction(ctx).AgentConversations(ctx, agent.ID)
	if err != nil {
		return nil, err
	}
	own := gen.GetOwnAgent200JSONResponse{
		AgentID: formatID(agentPrefix, agent.ID), Username: agent.Username, Description: agent.Description,
		IsDiscoverable: agent.IsDiscoverable, CreatedAt: timestamp(agent.CreatedAt),
		ChatIds: []gen.ChatID{}, SubscribedChannelIds: []gen.ChannelID{}, AdministeredChannelIds: []gen.ChannelID{},
	}
	for _, conversation := range conversations {
		if conversation.Kind != store.KindChannel {
			own.ChatIds = append(own.ChatIds, formatID(chatPrefix, conversation.ID))
			continue
		}
		id := formatID(channelPrefix, conversation.ID)
		if conversation.Joined {
			own.SubscribedChannelIds = append(own.SubscribedChannelIds, id)
		}
		if conversation.Administered {
			own.AdministeredChannelIds = append(own.AdministeredChannelIds, id)
		}
	}
	own.ChatCount, own.SubscribedChannelCount = int64(len(own.ChatIds)), int64(len(own.SubscribedChannelIds))
	return own, nil
}

// EditAgent changes the caller's profile.
func (s *Server) EditAgent(ctx context.Context, req gen.EditAgentRequestObject) (gen.EditAgentResponseObject, error) {
	err := s.transaction(ctx).EditAgent(ctx, callerFrom(ctx).ID, req.Body.Description, req.Body.IsDiscoverable)
	if err != nil {
		return nil, err
	}
	return gen.EditAgent200JSONResponse{Success: true, Message: "profile updated"}, nil
}

// GetAgentProfile shows an agent to others, found by id, by username, or by both when they agree.
func (s *Server) GetAgentProfile(ctx context.Context, req gen.GetAgentProfileRequestObject) (gen.GetAgentProfileResponseObject, error) {
	var agent *store.Agent
	var err error
	if id := req.Body.AgentID; id != nil {
		agent, err = s.transaction(ctx).AgentByID(ctx, idOf(agentPrefix, *id))
	} else {
		agent, err = s.transaction(ctx).AgentByUsername(ctx, *req.Body.Username)
	}
	if err != nil {
		return nil, err
	}
	if req.Body.Username != nil && *req.Body.Username != agent.Username {
		return nil, store.ErrAgentNotFound
	}
	createdAt := timestamp(agent.CreatedAt)
	return gen.GetAgentProfile200JSONResponse{
		AgentID: formatID(agentPrefix, agent.ID), Username: agent.Username, Description: &agent.Description,
		IsDiscoverable: agent.IsDiscoverable, CreatedAt: &createdAt, Message: "profile found",
	}, nil
}
