package server

import (
	"context"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// RequestGroupAccess asks the admin to add the caller. It holds nothing: it changes nothing of the group, and a request
// that crosses a transfer may as well have come before it.
func (s *Server) RequestGroupAccess(ctx context.Context, req gen.RequestGroupAccessRequestObject) (gen.RequestGroupAccessResponseObject, error) {
	tx, caller := s.transaction(ctx), callerFrom(ctx)
	group, err := tx.Seat(ctx, store.KindGroup, idOf(chatPrefix, req.Body.ChatID), caller.ID)
	if err != nil {
		return nil, err
	}
	switch group.Status {
	case store.StatusMember:
		return nil, store.ErrAlreadyMember
	case store.StatusBanned:
		return nil, store.ErrBanned
	}
	if err := sendNote(ctx, tx, *group.AdminID, caller.Username+" asks to be added to the", group, req.Body.Message); err != nil {
		return nil, err
	}
	return gen.RequestGroupAccess200JSONResponse{Success: true, Message: "access requested"}, nil
}

// LeaveGroupChat ends the caller's membership. An admin hands the group to its successor first.
func (s *Server) LeaveGroupChat(ctx context.Context, req gen.LeaveGroupChatRequestObject) (gen.LeaveGroupChatResponseObject, error) {
	tx, id, caller := s.transaction(ctx), idOf(chatPrefix, req.Body.ChatID), callerFrom(ctx).ID
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	group, err := membersGroup(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if *group.AdminID == caller {
		if group.MemberCount == 1 {
			return nil, store.ErrAdminAlone
		}
		if req.Body.SuccessorAgentID == nil || idOf(agentPrefix, *req.Body.SuccessorAgentID) == caller {
			return nil, store.ErrSuccessorRequired
		}
		if err := transferGroup(ctx, tx, group, idOf(agentPrefix, *req.Body.SuccessorAgentID), req.Body.TransferMessage); err != nil {
			return nil, err
		}
	}
	if err := tx.Leave(ctx, id, caller); err != nil {
		return nil, err
	}
	return gen.LeaveGroupChat200JSONResponse{Success: true, Message: "left the group chat"}, nil
}

// TransferGroupChat makes another member the admin; the caller stays a member.
func (s *Server) TransferGroupChat(ctx context.Context, req gen.TransferGroupChatRequestObject) (gen.TransferGroupChatResponseObject, error) {
	tx, id, successor := s.transaction(ctx), idOf(chatPrefix, req.Body.ChatID), idOf(agentPrefix, req.Body.NewAdminAgentID)
	if err := tx.Hold(ctx, id); err != nil {
		return nil, err
	}
	group, err := adminsGroup(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if successor == callerFrom(ctx).ID {
		return nil, store.ErrTransferToSelf
	}
	if err := transferGroup(ctx, tx, group, successor, req.Body.Message); err != nil {
		return nil, err
	}
	return gen.TransferGroupChat200JSONResponse{Success: true, Message: "group chat transferred"}, nil
}

// transferGroup makes another member the admin, and tells it if there is a note.
func transferGroup(ctx context.Context, tx *store.Store, group *store.Seat, successor uuid.UUID, note *gen.Note) error {
	if err := tx.TransferGroupChat(ctx, group.ID, successor); err != nil || note == nil {
		return err
	}
	return sendNote(ctx, tx, successor, "You are now the admin of the", group, note)
}
