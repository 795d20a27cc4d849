package server

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// CreateGroupChat founds a group chat; the caller is its admin and its first member.
func (s *Server) CreateGroupChat(ctx context.Context, req gen.CreateGroupChatRequestObject) (gen.CreateGroupChatResponseObject, error) {
	tx, id, admin, members := s.transaction(ctx), newID(), callerFrom(ctx).ID, idsOf(agentPrefix, req.Body.InitialMemberIds)
	if err := tx.CheckAgents(ctx, members); err != nil {
		return nil, err
	}
	if err := tx.CreateConversation(ctx, store.KindGroup, id, admin, req.Body.Name, req.Body.Description, req.Body.IsDiscoverable); err != nil {
		return nil, err
	}
	if err := tx.AddGroupMembers(ctx, id, admin, slices.Concat([]uuid.UUID{admin}, members)); err != nil {
		return nil, err
	}
	return gen.CreateGroupChat200JSONResponse{Success: true, ChatID: formatID(chatPrefix, id), Message: "group chat created"}, nil
}

// GetGroupChat shows a group chat to its members.
func (s *Server) GetGroupChat(ctx context.Context, req gen.GetGroupChatRequestObject) (gen.GetGroupChatResponseObject, error) {
	tx := s.transaction(ctx)
	group, err := membersGroup(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	members, err := tx.Members(ctx, group.ID, callerFrom(ctx).ID)
	if err != nil {
		return nil, err
	}
	info := gen.GetGroupChat200JSONResponse{
		ChatID: req.Body.ChatID, Name: *group.Name, Description: group.Description, Members: make([]gen.GroupMember, len(members)),
		PinnedMessageIds: messageIDs(group.Pinned), IsDiscoverable: group.IsDiscoverable, CreatedAt: timestamp(group.CreatedAt),
	}
	// Count and admin are those of the list: the group itself was read a moment before.
	info.MemberCount = int64(len(members))
	for i, member := range members {
		info.Members[i] = gen.GroupMember{
			AgentID: formatID(agentPrefix, member.ID), Username: member.Username, Description: member.Description,
			IsAdmin: member.IsAdmin, JoinedAt: timestamp(member.JoinedAt),
		}
		if member.IsAdmin {
			info.AdminID = info.Members[i].AgentID
		}
	}
	return info, nil
}

// EditGroupChat changes what is sent: the group's face, its members, bans and pins. All or nothing.
func (s *Server) EditGroupChat(ctx context.Context, req gen.EditGroupChatRequestObject) (gen.EditGroupChatResponseObject, error) {
	add, remove := idsOf(agentPrefix, req.Body.AddMemberIds), idsOf(agentPrefix, req.Body.RemoveMemberIds)
	ban, unban := idsOf(agentPrefix, req.Body.BanAgentIds), idsOf(agentPrefix, req.Body.UnbanAgentIds)
	if err := inOneList(add, remove, ban, unban); err != nil {
		return nil, err
	}
	tx, id := s.transaction(ctx), idOf(chatPrefix, req.Body.ChatID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	group, err := adminsGroup(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if err := tx.CheckAgents(ctx, slices.Concat(add, remove, ban, unban)); err != nil {
		return nil, err
	}
	if slices.Contains(remove, *group.AdminID) || slices.Contains(ban, *group.AdminID) {
		return nil, store.ErrAdminMustTransfer
	}
	if err := tx.EditConversation(ctx, id, req.Body.Name, req.Body.Description, req.Body.IsDiscoverable); err != nil {
		return nil, err
	}
	if err := tx.Unpin(ctx, id, idsOf(messagePrefix, req.Body.UnpinMessageIds)); err != nil {
		return nil, err
	}
	// Who goes makes room for who comes.
	if err := tx.Leave(ctx, id, remove...); err != nil {
		return nil, err
	}
	if err := tx.Ban(ctx, id, ban...); err != nil {
		return nil, err
	}
	if err := tx.Unban(ctx, id, unban...); err != nil {
		return nil, err
	}
	if err := tx.AddGroupMembers(ctx, id, *group.AdminID, add); err != nil {
		return nil, err
	}
	return gen.EditGroupChat200JSONResponse{Success: true, Message: "group chat updated"}, nil
}

// DeleteGroupChat ends a group chat for everybody.
func (s *Server) DeleteGroupChat(ctx context.Context, req gen.DeleteGroupChatRequestObject) (gen.DeleteGroupChatResponseObject, error) {
	tx, id := s.transaction(ctx), idOf(chatPrefix, req.Body.ChatID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	if _, err := adminsGroup(ctx, tx, id); err != nil {
		return nil, err
	}
	if err := tx.DeleteConversation(ctx, id); err != nil {
		return nil, err
	}
	return gen.DeleteGroupChat200JSONResponse{Success: true, Message: "group chat deleted"}, nil
}

// SendGroupMessage writes to all members.
func (s *Server) SendGroupMessage(ctx context.Context, req gen.SendGroupMessageRequestObject) (gen.SendGroupMessageResponseObject, error) {
	message := groupMessage(ctx, req)
	if _, err := s.transaction(ctx).SendMessage(ctx, message); err != nil {
		return nil, err
	}
	return sentToGroup(message), nil
}

func groupMessage(ctx context.Context, req gen.SendGroupMessageRequestObject) store.OutgoingMessage {
	return store.OutgoingMessage{
		Kind: store.KindGroup, To: idOf(chatPrefix, req.Body.ChatID), Sender: callerFrom(ctx).ID, ID: newID(), Content: req.Body.Content,
	}
}

func sentToGroup(message store.OutgoingMessage) gen.SendGroupMessage200JSONResponse {
	return gen.SendGroupMessage200JSONResponse{Success: true, MessageID: formatID(messagePrefix, message.ID), Message: "message sent"}
}

// ListGroupMessages returns a page of the group's messages, newest first, and marks them read.
func (s *Server) ListGroupMessages(ctx context.Context, req gen.ListGroupMessagesRequestObject) (gen.ListGroupMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	group, err := membersGroup(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := readMessages(ctx, tx, group, req.Body.N, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.ListGroupMessages200JSONResponse(*page), nil
}

// PinGroupMessage pins a message of the group.
func (s *Server) PinGroupMessage(ctx context.Context, req gen.PinGroupMessageRequestObject) (gen.PinGroupMessageResponseObject, error) {
	tx, id := s.transaction(ctx), idOf(chatPrefix, req.Body.ChatID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	if _, err := adminsGroup(ctx, tx, id); err != nil {
		return nil, err
	}
	pinned, err := tx.PinMessage(ctx, id, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	return gen.PinGroupMessage200JSONResponse{Success: true, PinnedMessageIds: messageIDs(pinned), Message: "message pinned"}, nil
}

func messageIDs(ids []uuid.UUID) []gen.MessageID {
	texts := make([]gen.MessageID, len(ids))
	for i, id := range ids {
		texts[i] = formatID(messagePrefix, id)
	}
	return texts
}
