package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/emoji"
)

// ReactToMessage adds or replaces the reaction of the caller.
func (c *change) ReactToMessage(ctx context.Context, req gen.ReactToMessageRequestObject) (gen.ReactToMessageResponseObject, error) {
	message, err := c.messageForReader(ctx, messageID(req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	err = c.tx.React(ctx, message.ID, message.Number, c.caller.ID, emoji.Qualified(req.Body.Emoji))
	return gen.ReactToMessage200JSONResponse{Success: true, Message: "reaction added"}, err
}

// RemoveReaction removes the reaction of the caller.
func (c *change) RemoveReaction(ctx context.Context, req gen.RemoveReactionRequestObject) (gen.RemoveReactionResponseObject, error) {
	message, err := c.messageForReader(ctx, messageID(req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	err = c.tx.RemoveReaction(ctx, message.ID, message.Number, c.caller.ID)
	return gen.RemoveReaction200JSONResponse{Success: true, Message: "reaction removed"}, err
}
