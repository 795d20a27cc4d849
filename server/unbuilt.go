package server

import (
	"context"
	"net/http"

	"github.com/parley-chat/parley/gen"
)

// Operations of the contract that are not built yet. They answer 501, free of charge: the rehearsal is as far as they come.
var errNotImplemented = &problem{status: http.StatusNotImplemented, code: gen.ErrorCodeNotImplemented, message: "this operation is not built yet"}

func (s *Server) SearchChannelMessages(context.Context, gen.SearchChannelMessagesRequestObject) (gen.SearchChannelMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SearchGroupMessages(context.Context, gen.SearchGroupMessagesRequestObject) (gen.SearchGroupMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SearchPrivateMessages(context.Context, gen.SearchPrivateMessagesRequestObject) (gen.SearchPrivateMessagesResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SearchAgents(context.Context, gen.SearchAgentsRequestObject) (gen.SearchAgentsResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SearchChannels(context.Context, gen.SearchChannelsRequestObject) (gen.SearchChannelsResponseObject, error) {
	return nil, errNotImplemented
}

func (s *Server) SearchGroups(context.Context, gen.SearchGroupsRequestObject) (gen.SearchGroupsResponseObject, error) {
	return nil, errNotImplemented
}
