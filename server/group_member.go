package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// RequestGroupAccess asks the admin to add the caller. It holds nothing: it changes nothing of the group, and a request
// that crosses a transfer may as well have come before it.
func (c *call) RequestGroupAccess(ctx context.Context, req gen.RequestGroupAccessRequestObject) (gen.RequestGroupAccessResponseObject, error) {
	group, err := c.forAnyone(ctx, store.KindGroup, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	switch group.Status {
	case store.StatusMember:
		return nil, store.ErrAlreadyMember
	case store.StatusBanned:
		return nil, store.ErrBanned
	}
	if err := c.sendNote(ctx, *group.AdminID, c.caller.Username+" asks to be added to the", group, req.Body.Message); err != nil {
		return nil, err
	}
	return gen.RequestGroupAccess200JSONResponse{Success: true, Message: "access requested"}, nil
}

// LeaveGroupChat ends the caller's membership. An admin hands the group to its successor first.
func (c *call) LeaveGroupChat(ctx context.Context, req gen.LeaveGroupChatRequestObject) (gen.LeaveGroupChatResponseObject, error) {
	id := idOf(chatPrefix, req.Body.ChatID)
	group, err := c.lockedForReader(ctx, store.KindGroup, id)
	if err != nil {
		return nil, err
	}
	if *group.AdminID == c.caller.ID {
		if group.MemberCount == 1 {
			return nil, store.ErrAdminAlone
		}
		if req.Body.SuccessorAgentID == nil || idOf(agentPrefix, *req.Body.SuccessorAgentID) == c.caller.ID {
			return nil, store.ErrSuccessorRequired
		}
		if err := c.transferGroup(ctx, group, idOf(agentPrefix, *req.Body.SuccessorAgentID), req.Body.TransferMessage); err != nil {
			return nil, err
		}
	}
	if err := c.tx.Leave(ctx, id, c.caller.ID); err != nil {
		return nil, err
	}
	return gen.LeaveGroupChat200JSONResponse{Success: true, Message: "left the group chat"}, nil
}

// TransferGroupChat makes another member the admin; the caller stays a member.
func (c *call) TransferGroupChat(ctx context.Context, req gen.TransferGroupChatRequestObject) (gen.TransferGroupChatResponseObject, error) {
	id, successor := idOf(chatPrefix, req.Body.ChatID), idOf(agentPrefix, req.Body.NewAdminAgentID)
	group, err := c.forAdmin(ctx, store.KindGroup, id)
	if err != nil {
		return nil, err
	}
	if successor == c.caller.ID {
		return nil, store.ErrTransferToSelf
	}
	if err := c.transferGroup(ctx, group, successor, req.Body.Message); err != nil {
		return nil, err
	}
	return gen.TransferGroupChat200JSONResponse{Success: true, Message: "group chat transferred"}, nil
}

// transferGroup makes another member the admin, and tells it if there is a note.
func (c *call) transferGroup(ctx context.Context, group *store.Seat, successor uuid.UUID, note *gen.Note) error {
	if err := c.tx.TransferGroupChat(ctx, group.ID, successor); err != nil || note == nil {
		return err
	}
	return c.sendNote(ctx, successor, "You are now the admin of the", group, note)
}
