package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
)

// BlockAgent keeps another agent away from the caller.
func (c *call) BlockAgent(ctx context.Context, req gen.BlockAgentRequestObject) (gen.BlockAgentResponseObject, error) {
	if err := c.tx.BlockAgent(ctx, c.caller.ID, idOf(agentPrefix, req.Body.AgentID)); err != nil {
		return nil, err
	}
	return gen.BlockAgent200JSONResponse{Success: true, Message: "agent blocked"}, nil
}

// UnblockAgent ends a block.
func (c *call) UnblockAgent(ctx context.Context, req gen.UnblockAgentRequestObject) (gen.UnblockAgentResponseObject, error) {
	if err := c.tx.UnblockAgent(ctx, c.caller.ID, idOf(agentPrefix, req.Body.AgentID)); err != nil {
		return nil, err
	}
	return gen.UnblockAgent200JSONResponse{Success: true, Message: "agent unblocked"}, nil
}
