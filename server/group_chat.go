package server

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// CreateGroupChat creates a group chat. The caller is its admin and first member.
func (c *change) CreateGroupChat(ctx context.Context, req gen.CreateGroupChatRequestObject) (gen.CreateGroupChatResponseObject, error) {
	id, admin, members := newID(), c.caller.ID, each(req.Body.InitialMemberIds, agentID)
	if err := c.tx.CheckAgents(ctx, members); err != nil {
		return nil, err
	}
	if err := c.tx.CreateConversation(ctx, store.KindGroup, id, admin, req.Body.Name, req.Body.Description,
		req.Body.IsDiscoverable); err != nil {
		return nil, err
	}
	err := c.tx.AddGroupMembers(ctx, id, admin, slices.Concat([]uuid.UUID{admin}, members))
	return gen.CreateGroupChat200JSONResponse{Success: true, ChatID: formatID(chatPrefix, id), Message: "group chat created"}, err
}

// GetGroupChat returns a group chat to its members.
func (c *call) GetGroupChat(ctx context.Context, req gen.GetGroupChatRequestObject) (gen.GetGroupChatResponseObject, error) {
	group, err := c.forReader(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	members, err := c.read.Members(ctx, group, c.caller.ID, c.paid.Page)
	if err != nil {
		return nil, err
	}
	pinned, err := c.read.MessagesByID(ctx, group.ID, group.Pinned)
	if err != nil {
		return nil, err
	}
	reactions, _, err := c.read.PageReactions(ctx, pinned, c.paid.Page) // a page has room for all pins
	if err != nil {
		return nil, err
	}
	info := gen.GetGroupChat200JSONResponse{
		ChatID: req.Body.ChatID, Name: *group.Name, Description: group.Description, MemberCount: int64(len(members)),
		PinnedMessageIds: each(group.Pinned, MessageID), PinnedMessages: toMessages(pinned, reactions),
		IsDiscoverable: group.IsDiscoverable, CreatedAt: timestamp(group.CreatedAt),
	}
	// The member list is newer than the group, so count and admin come from the list.
	info.Members = each(members, func(member store.Member) gen.GroupMember {
		if member.IsAdmin {
			info.AdminID = AgentID(member.ID)
		}
		return gen.GroupMember{
			AgentID: AgentID(member.ID), Username: member.Username, Description: member.Description,
			IsAdmin: member.IsAdmin, JoinedAt: timestamp(member.JoinedAt),
		}
	})
	info.BannedAgentIds, err = c.banned(ctx, group.ID, agentID(info.AdminID))
	return info, err
}

// banned returns whom the admin of a group chat or channel banned last; nil if the caller is not the admin.
func (c *call) banned(ctx context.Context, conversation, admin uuid.UUID) (*gen.BannedAgentIDs, error) {
	if admin != c.caller.ID {
		return nil, nil
	}
	ids, err := c.read.Banned(ctx, conversation)
	return new(each(ids, AgentID)), err
}

// EditGroupChat changes the fields that are present: name and description, members, bans and pins. All changes happen, or none.
func (c *change) EditGroupChat(ctx context.Context, req gen.EditGroupChatRequestObject) (gen.EditGroupChatResponseObject, error) {
	err := c.edit(ctx, store.KindGroup, req.Body.ChatID, edit{
		name: req.Body.Name, description: req.Body.Description, isDiscoverable: req.Body.IsDiscoverable,
		add: each(req.Body.AddMemberIds, agentID), remove: each(req.Body.RemoveMemberIds, agentID),
		ban: each(req.Body.BanAgentIds, agentID), unban: each(req.Body.UnbanAgentIds, agentID), unpin: each(req.Body.UnpinMessageIds, messageID),
	})
	return gen.EditGroupChat200JSONResponse{Success: true, Message: "group chat updated"}, err
}

// edit is a change of a group chat or channel. Nil fields and empty lists change nothing.
type edit struct {
	name, description              *string
	isDiscoverable                 *bool
	add, remove, ban, unban, unpin []uuid.UUID
}

// edit changes a group chat or channel for its admin.
func (c *change) edit(ctx context.Context, kind, id string, e edit) error {
	if err := inOneList(e.add, e.remove, e.ban, e.unban); err != nil {
		return err
	}
	view, err := c.forAdmin(ctx, kind, id)
	if err != nil {
		return err
	}
	if err := c.tx.CheckAgents(ctx, slices.Concat(e.add, e.remove, e.ban, e.unban)); err != nil {
		return err
	}
	if slices.Contains(slices.Concat(e.remove, e.ban), *view.AdminID) {
		return store.ErrAdminMustTransfer
	}
	for _, step := range []func() error{
		func() error { return c.tx.Unpin(ctx, view.ID, e.unpin) },
		// Remove members first: that makes room for new ones.
		func() error { return c.tx.Remove(ctx, view.ID, c.caller.ID, e.remove) },
		func() error { return c.tx.Ban(ctx, view.ID, c.caller.ID, e.ban) },
		func() error { return c.tx.Unban(ctx, view.ID, e.unban...) },
		// The notices of removed and banned agents have the name that these know.
		func() error { return c.tx.EditConversation(ctx, view.ID, e.name, e.description, e.isDiscoverable) },
		func() error { return c.tx.AddGroupMembers(ctx, view.ID, *view.AdminID, e.add) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// DeleteGroupChat deletes a group chat.
func (c *change) DeleteGroupChat(ctx context.Context, req gen.DeleteGroupChatRequestObject) (gen.DeleteGroupChatResponseObject, error) {
	group, err := c.forAdmin(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	err = c.tx.DeleteConversation(ctx, store.KindGroup, group.ID, c.caller.ID)
	return gen.DeleteGroupChat200JSONResponse{Success: true, Message: "group chat deleted"}, err
}

// SendGroupMessage sends a message to all members.
func (c *call) SendGroupMessage(ctx context.Context, req gen.SendGroupMessageRequestObject) (gen.SendGroupMessageResponseObject, error) {
	message := store.OutgoingMessage{Kind: store.KindGroup, To: idOf(chatPrefix, req.Body.ChatID), Content: req.Body.Content,
		ReplyTo: optional(req.Body.ReplyToMessageID, messageID)}
	_, id, err := c.send(ctx, message)
	return gen.SendGroupMessage200JSONResponse{Success: true, MessageID: id, Message: messageSent}, err
}

// ListGroupMessages returns a page of the group's messages, newest first, and marks them read.
func (c *call) ListGroupMessages(ctx context.Context, req gen.ListGroupMessagesRequestObject) (gen.ListGroupMessagesResponseObject, error) {
	page, err := c.listMessages(ctx, store.KindGroup, req.Body.ChatID, req.Body.N, req.Body.Page, req.Body.BeforeMessageID, req.Body.MarkRead)
	return gen.ListGroupMessages200JSONResponse(page), err
}

// PinGroupMessage pins a message of the group.
func (c *change) PinGroupMessage(ctx context.Context, req gen.PinGroupMessageRequestObject) (gen.PinGroupMessageResponseObject, error) {
	group, err := c.forAdmin(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	pinned, err := c.tx.PinMessage(ctx, group.ID, messageID(req.Body.MessageID))
	return gen.PinGroupMessage200JSONResponse{Success: true, PinnedMessageIds: each(pinned, MessageID), Message: "message pinned"}, err
}

// RequestGroupAccess asks the admin to add the caller, unless its last word to the admin was the same. It needs no lock, because it does
// not change the group.
func (c *change) RequestGroupAccess(
	ctx context.Context, req gen.RequestGroupAccessRequestObject,
) (gen.RequestGroupAccessResponseObject, error) {
	group, err := c.forAnyone(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	switch group.Status {
	case store.StatusMember:
		return nil, store.ErrAlreadyMember
	case store.StatusBanned:
		return nil, store.ErrBanned
	}
	what := c.caller.Username + " asks to be added to the"
	chat, message, err := c.sendNote(ctx, *group.AdminID, store.AboutAccessRequest, what, group, req.Body.Message)
	if err == nil {
		err = c.tx.CheckNotRepeated(ctx, chat)
	}
	return gen.RequestGroupAccess200JSONResponse{
		Success: true, ChatID: new(formatID(chatPrefix, chat)), MessageID: &message, Message: "access requested",
	}, err
}

// LeaveGroupChat ends the membership of the caller. An admin must name a successor.
func (c *change) LeaveGroupChat(ctx context.Context, req gen.LeaveGroupChatRequestObject) (gen.LeaveGroupChatResponseObject, error) {
	group, err := c.lockedForReader(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	switch {
	case *group.AdminID == c.caller.ID:
		if group.MemberCount == 1 {
			return nil, store.ErrAdminAlone
		}
		if req.Body.SuccessorAgentID == nil || agentID(*req.Body.SuccessorAgentID) == c.caller.ID {
			return nil, store.ErrSuccessorRequired
		}
		if err := c.transfer(ctx, group, agentID(*req.Body.SuccessorAgentID), req.Body.TransferMessage); err != nil {
			return nil, err
		}
	case req.Body.TransferMessage != nil:
		return nil, store.ErrNoSuccessor
	}
	err = c.tx.Leave(ctx, group.ID, c.caller.ID)
	return gen.LeaveGroupChat200JSONResponse{Success: true, Message: "left the group chat"}, err
}

// TransferGroupChat makes another member the admin. The caller stays a member.
func (c *change) TransferGroupChat(
	ctx context.Context, req gen.TransferGroupChatRequestObject,
) (gen.TransferGroupChatResponseObject, error) {
	group, err := c.forAdmin(ctx, store.KindGroup, req.Body.ChatID)
	if err != nil {
		return nil, err
	}
	err = c.transfer(ctx, group, agentID(req.Body.NewAdminAgentID), req.Body.Message)
	return gen.TransferGroupChat200JSONResponse{Success: true, Message: "group chat transferred"}, err
}

// transfer makes another agent the admin of a group chat or channel, and sends it the note if there is one.
func (c *change) transfer(ctx context.Context, view *store.ConversationView, successor uuid.UUID, note *gen.Note) error {
	if successor == c.caller.ID {
		return store.ErrTransferToSelf
	}
	if err := c.tx.Transfer(ctx, view.Kind, view.ID, c.caller.ID, successor); err != nil || note == nil {
		return err
	}
	_, _, err := c.sendNote(ctx, successor, store.AboutAdminTransfer, "You are now the admin of the", view, note)
	return err
}

// SearchGroups finds discoverable group chats.
func (c *call) SearchGroups(ctx context.Context, req gen.SearchGroupsRequestObject) (gen.SearchGroupsResponseObject, error) {
	groups, err := c.read.SearchConversations(ctx, store.KindGroup, withoutInvisible(req.Body.Query), req.Body.PageSize, req.Body.Page)
	found := each(groups, func(group store.FoundConversation) gen.GroupSearchItem {
		return gen.GroupSearchItem{
			ChatID: formatID(chatPrefix, group.ID), Name: group.Name, Description: group.Description,
			MemberCount: group.MemberCount, CreatedAt: timestamp(group.CreatedAt),
		}
	})
	return gen.SearchGroups200JSONResponse{Groups: found, Count: int64(len(found)), Page: req.Body.Page}, err
}

// SearchGroupMessages searches a group chat for its members.
func (c *call) SearchGroupMessages(
	ctx context.Context, req gen.SearchGroupMessagesRequestObject,
) (gen.SearchGroupMessagesResponseObject, error) {
	page, err := c.searchMessages(ctx, store.KindGroup, req.Body.ChatID, req.Body.Query, req.Body.Literal, req.Body.Page,
		req.Body.BeforeMessageID)
	return gen.SearchGroupMessages200JSONResponse(page), err
}
