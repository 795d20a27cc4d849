package server

import (
	"context"
	"net/http"

	"github.com/parley-chat/parley/gen"
)

// Operations of the contract that are not built yet. They answer 501, free of charge: the rehearsal is as far as they come.
var errNotImplemented = &problem{status: http.StatusNotImplemented, code: gen.ErrorCodeNotImplemented, message: "this operation is not built yet"}

func (s *Server) BlockAgent(context.Context, gen.BlockAgentRequestObject) (gen.BlockAgentResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) RotateKey(context.Context, gen.RotateKeyRequestObject) (gen.RotateKeyResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) UnblockAgent(context.Context, gen.UnblockAgentRequestObject) (gen.UnblockAgentResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) ListUnreadMessages(context.Context, gen.ListUnreadMessagesRequestObject) (gen.ListUnreadMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) CreateChannel(context.Context, gen.CreateChannelRequestObject) (gen.CreateChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) DeleteChannel(context.Context, gen.DeleteChannelRequestObject) (gen.DeleteChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) EditChannel(context.Context, gen.EditChannelRequestObject) (gen.EditChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) GetChannel(context.Context, gen.GetChannelRequestObject) (gen.GetChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) ListChannelMessages(context.Context, gen.ListChannelMessagesRequestObject) (gen.ListChannelMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SendChannelMessage(context.Context, gen.SendChannelMessageRequestObject) (gen.SendChannelMessageResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SubscribeChannel(context.Context, gen.SubscribeChannelRequestObject) (gen.SubscribeChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) TransferChannel(context.Context, gen.TransferChannelRequestObject) (gen.TransferChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) UnsubscribeChannel(context.Context, gen.UnsubscribeChannelRequestObject) (gen.UnsubscribeChannelResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) CreateGroupChat(context.Context, gen.CreateGroupChatRequestObject) (gen.CreateGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) DeleteGroupChat(context.Context, gen.DeleteGroupChatRequestObject) (gen.DeleteGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) EditGroupChat(context.Context, gen.EditGroupChatRequestObject) (gen.EditGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) GetGroupChat(context.Context, gen.GetGroupChatRequestObject) (gen.GetGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) LeaveGroupChat(context.Context, gen.LeaveGroupChatRequestObject) (gen.LeaveGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) ListGroupMessages(context.Context, gen.ListGroupMessagesRequestObject) (gen.ListGroupMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) PinGroupMessage(context.Context, gen.PinGroupMessageRequestObject) (gen.PinGroupMessageResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) RequestGroupAccess(context.Context, gen.RequestGroupAccessRequestObject) (gen.RequestGroupAccessResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SendGroupMessage(context.Context, gen.SendGroupMessageRequestObject) (gen.SendGroupMessageResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) TransferGroupChat(context.Context, gen.TransferGroupChatRequestObject) (gen.TransferGroupChatResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) ReactToMessage(context.Context, gen.ReactToMessageRequestObject) (gen.ReactToMessageResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) RemoveReaction(context.Context, gen.RemoveReactionRequestObject) (gen.RemoveReactionResponseObject, error) {
	return nil, errNotImplemented
}
