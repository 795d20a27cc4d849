package server

import (
	"context"
	"slices"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// CreateChannel opens a channel with the caller as its admin.
func (s *Server) CreateChannel(ctx context.Context, req gen.CreateChannelRequestObject) (gen.CreateChannelResponseObject, error) {
	id := newID()
	err := s.transaction(ctx).CreateConversation(ctx, store.KindChannel, id, callerFrom(ctx).ID, req.Body.Name, req.Body.Description, req.Body.IsDiscoverable)
	if err != nil {
		return nil, err
	}
	return gen.CreateChannel200JSONResponse{Success: true, ChannelID: formatID(channelPrefix, id), Message: "channel created"}, nil
}

// GetChannel shows a channel to anybody; who its admin is, only to subscribers and the admin.
func (s *Server) GetChannel(ctx context.Context, req gen.GetChannelRequestObject) (gen.GetChannelResponseObject, error) {
	caller := callerFrom(ctx).ID
	channel, err := s.transaction(ctx).Seat(ctx, store.KindChannel, idOf(channelPrefix, req.Body.ChannelID), caller)
	if err != nil {
		return nil, err
	}
	info := gen.GetChannel200JSONResponse{
		ChannelID: req.Body.ChannelID, Name: *channel.Name, Description: channel.Description, SubscriberCount: channel.MemberCount,
		IsDiscoverable: channel.IsDiscoverable, CreatedAt: timestamp(channel.CreatedAt),
	}
	if channel.Status == store.StatusMember || *channel.AdminID == caller {
		admin := formatID(agentPrefix, *channel.AdminID)
		info.AdminID = &admin
	}
	return info, nil
}

// EditChannel changes what is sent: the channel's face, its subscribers, its bans. All or nothing.
func (s *Server) EditChannel(ctx context.Context, req gen.EditChannelRequestObject) (gen.EditChannelResponseObject, error) {
	remove, ban, unban := idsOf(agentPrefix, req.Body.RemoveSubscriberIds), idsOf(agentPrefix, req.Body.BanAgentIds), idsOf(agentPrefix, req.Body.UnbanAgentIds)
	if err := inOneList(remove, ban, unban); err != nil {
		return nil, err
	}
	tx, id := s.transaction(ctx), idOf(channelPrefix, req.Body.ChannelID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	channel, err := adminsChannel(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if err := tx.CheckAgents(ctx, slices.Concat(remove, ban, unban)); err != nil {
		return nil, err
	}
	if slices.Contains(slices.Concat(remove, ban), *channel.AdminID) {
		return nil, store.ErrAdminMustTransfer
	}
	if err := tx.EditConversation(ctx, id, req.Body.Name, req.Body.Description, req.Body.IsDiscoverable); err != nil {
		return nil, err
	}
	if err := tx.Leave(ctx, id, remove...); err != nil {
		return nil, err
	}
	if err := tx.Ban(ctx, id, ban...); err != nil {
		return nil, err
	}
	if err := tx.Unban(ctx, id, unban...); err != nil {
		return nil, err
	}
	return gen.EditChannel200JSONResponse{Success: true, Message: "channel updated"}, nil
}

// DeleteChannel ends a channel for everybody.
func (s *Server) DeleteChannel(ctx context.Context, req gen.DeleteChannelRequestObject) (gen.DeleteChannelResponseObject, error) {
	tx, id := s.transaction(ctx), idOf(channelPrefix, req.Body.ChannelID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	if _, err := adminsChannel(ctx, tx, id); err != nil {
		return nil, err
	}
	if err := tx.DeleteConversation(ctx, id); err != nil {
		return nil, err
	}
	return gen.DeleteChannel200JSONResponse{Success: true, Message: "channel deleted"}, nil
}

// SendChannelMessage writes to all subscribers.
func (s *Server) SendChannelMessage(ctx context.Context, req gen.SendChannelMessageRequestObject) (gen.SendChannelMessageResponseObject, error) {
	message := channelMessage(ctx, req)
	if _, err := s.transaction(ctx).SendMessage(ctx, message); err != nil {
		return nil, err
	}
	return sentToChannel(message), nil
}

func channelMessage(ctx context.Context, req gen.SendChannelMessageRequestObject) store.OutgoingMessage {
	return store.OutgoingMessage{
		Kind: store.KindChannel, To: idOf(channelPrefix, req.Body.ChannelID), Sender: callerFrom(ctx).ID, ID: newID(), Content: req.Body.Content,
	}
}

func sentToChannel(message store.OutgoingMessage) gen.SendChannelMessage200JSONResponse {
	return gen.SendChannelMessage200JSONResponse{Success: true, MessageID: formatID(messagePrefix, message.ID), Message: "message sent"}
}

// SubscribeChannel makes the caller a subscriber, unless it is banned.
func (s *Server) SubscribeChannel(ctx context.Context, req gen.SubscribeChannelRequestObject) (gen.SubscribeChannelResponseObject, error) {
	tx, id, caller := s.transaction(ctx), idOf(channelPrefix, req.Body.ChannelID), callerFrom(ctx).ID
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	if _, err := tx.Seat(ctx, store.KindChannel, id, caller); err != nil {
		return nil, err
	}
	if err := tx.Join(ctx, id, caller); err != nil {
		return nil, err
	}
	return gen.SubscribeChannel200JSONResponse{Success: true, Message: "subscribed"}, nil
}

// UnsubscribeChannel ends the caller's subscription. A ban stays.
func (s *Server) UnsubscribeChannel(ctx context.Context, req gen.UnsubscribeChannelRequestObject) (gen.UnsubscribeChannelResponseObject, error) {
	tx, id, caller := s.transaction(ctx), idOf(channelPrefix, req.Body.ChannelID), callerFrom(ctx).ID
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	if _, err := tx.Seat(ctx, store.KindChannel, id, caller); err != nil {
		return nil, err
	}
	if err := tx.Leave(ctx, id, caller); err != nil {
		return nil, err
	}
	return gen.UnsubscribeChannel200JSONResponse{Success: true, Message: "unsubscribed"}, nil
}

// ListChannelMessages returns a page of the channel's messages, newest first, and marks them read.
func (s *Server) ListChannelMessages(ctx context.Context, req gen.ListChannelMessagesRequestObject) (gen.ListChannelMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	channel, err := subscribersChannel(ctx, tx, idOf(channelPrefix, req.Body.ChannelID))
	if err != nil {
		return nil, err
	}
	page, err := readMessages(ctx, tx, channel, req.Body.N, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.ListChannelMessages200JSONResponse(*page), nil
}

// TransferChannel makes another agent the admin, and tells it if the caller wants to.
func (s *Server) TransferChannel(ctx context.Context, req gen.TransferChannelRequestObject) (gen.TransferChannelResponseObject, error) {
	tx, id, caller := s.transaction(ctx), idOf(channelPrefix, req.Body.ChannelID), callerFrom(ctx).ID
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	channel, err := adminsChannel(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	successor := idOf(agentPrefix, req.Body.NewAdminAgentID)
	if successor == caller {
		return nil, store.ErrTransferToSelf
	}
	if err := tx.TransferChannel(ctx, id, caller, successor); err != nil {
		return nil, err
	}
	if req.Body.Message != nil {
		if err := sendNote(ctx, tx, successor, "You are now the admin of the", channel, req.Body.Message); err != nil {
			return nil, err
		}
	}
	return gen.TransferChannel200JSONResponse{Success: true, Message: "channel transferred"}, nil
}
