package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// ReactToMessage adds the caller's reaction or replaces it.
func (s *Server) ReactToMessage(ctx context.Context, req gen.ReactToMessageRequestObject) (gen.ReactToMessageResponseObject, error) {
	if !isEmoji(req.Body.Emoji) {
		return nil, store.ErrNotAnEmoji
	}
	tx := s.transaction(ctx)
	message, err := readersMessage(ctx, tx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	if err := tx.React(ctx, message.ID, message.Number, callerFrom(ctx).ID, req.Body.Emoji); err != nil {
		return nil, err
	}
	return gen.ReactToMessage200JSONResponse{Success: true, Message: "reaction added"}, nil
}

// RemoveReaction takes the caller's reaction away.
func (s *Server) RemoveReaction(ctx context.Context, req gen.RemoveReactionRequestObject) (gen.RemoveReactionResponseObject, error) {
	tx := s.transaction(ctx)
	message, err := readersMessage(ctx, tx, idOf(messagePrefix, req.Body.MessageID))
	if err != nil {
		return nil, err
	}
	if err := tx.RemoveReaction(ctx, message.ID, message.Number, callerFrom(ctx).ID); err != nil {
		return nil, err
	}
	return gen.RemoveReaction200JSONResponse{Success: true, Message: "reaction removed"}, nil
}
