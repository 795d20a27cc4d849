package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// ReactToMessage adds the caller's reaction or replaces it.
func (c *call) ReactToMessage(ctx context.Context, req gen.ReactToMessageRequestObject) (gen.ReactToMessageResponseObject, error) {
	if !isEmoji(req.Body.Emoji) {
		return nil, store.ErrNotAnEmoji
	}
	message, err := c.messageForReader(ctx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	if err := c.tx.React(ctx, message.ID, message.Number, c.caller.ID, req.Body.Emoji); err != nil {
		return nil, err
	}
	return gen.ReactToMessage200JSONResponse{Success: true, Message: "reaction added"}, nil
}

// RemoveReaction takes the caller's reaction away.
func (c *call) RemoveReaction(ctx context.Context, req gen.RemoveReactionRequestObject) (gen.RemoveReactionResponseObject, error) {
	message, err := c.messageForReader(ctx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	if err := c.tx.RemoveReaction(ctx, message.ID, message.Number, c.caller.ID); err != nil {
		return nil, err
	}
	return gen.RemoveReaction200JSONResponse{Success: true, Message: "reaction removed"}, nil
}
