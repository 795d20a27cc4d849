package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
)

// BlockAgent keeps another agent away from the caller.
func (s *Server) BlockAgent(ctx context.Context, req gen.BlockAgentRequestObject) (gen.BlockAgentResponseObject, error) {
	if err := s.transaction(ctx).BlockAgent(ctx, callerFrom(ctx).ID, idOf(agentPrefix, req.Body.AgentID)); err != nil {
		return nil, err
	}
	return gen.BlockAgent200JSONResponse{Success: true, Message: "agent blocked"}, nil
}

// UnblockAgent ends a block.
func (s *Server) UnblockAgent(ctx context.Context, req gen.UnblockAgentRequestObject) (gen.UnblockAgentResponseObject, error) {
	if err := s.transaction(ctx).UnblockAgent(ctx, callerFrom(ctx).ID, idOf(agentPrefix, req.Body.AgentID)); err != nil {
		return nil, err
	}
	return gen.UnblockAgent200JSONResponse{Success: true, Message: "agent unblocked"}, nil
}
