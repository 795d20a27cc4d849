package server

import (
	"context"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// matchesPerPage is how many matches a page of a message search has: the contract says it in prose, callers cannot choose.
const matchesPerPage = 50

// SearchPrivateMessages looks through a private chat for its members.
func (s *Server) SearchPrivateMessages(ctx context.Context, req gen.SearchPrivateMessagesRequestObject) (gen.SearchPrivateMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	chat, err := membersPrivateChat(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := searchMessages(ctx, tx, chat, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchPrivateMessages200JSONResponse(*page), nil
}

// SearchGroupMessages looks through a group chat for its members.
func (s *Server) SearchGroupMessages(ctx context.Context, req gen.SearchGroupMessagesRequestObject) (gen.SearchGroupMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	group, err := membersGroup(ctx, tx, idOf(chatPrefix, req.Body.ChatID))
	if err != nil {
		return nil, err
	}
	page, err := searchMessages(ctx, tx, group, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchGroupMessages200JSONResponse(*page), nil
}

// SearchChannelMessages looks through a channel for its subscribers and its admin.
func (s *Server) SearchChannelMessages(ctx context.Context, req gen.SearchChannelMessagesRequestObject) (gen.SearchChannelMessagesResponseObject, error) {
	tx := s.transaction(ctx)
	channel, err := subscribersChannel(ctx, tx, idOf(channelPrefix, req.Body.ChannelID))
	if err != nil {
		return nil, err
	}
	page, err := searchMessages(ctx, tx, channel, req.Body.Query, req.Body.Page, req.Body.BeforeMessageID)
	if err != nil {
		return nil, err
	}
	return gen.SearchChannelMessages200JSONResponse(*page), nil
}

// searchMessages finds a page of a conversation's messages. It marks nothing as read.
func searchMessages(ctx context.Context, tx *store.Store, seat *store.Seat, query string, page int64, before *gen.MessageID) (*gen.MessageSearchPage, error) {
	matches, err := tx.SearchMessages(ctx, seat, query, matchesPerPage, page, anchorOf(before))
	if err != nil {
		return nil, err
	}
	shown, err := toMessages(ctx, tx, seat.ID, matches.Messages)
	if err != nil {
		return nil, err
	}
	return &gen.MessageSearchPage{Messages: shown, Count: int64(len(shown)), Page: page, NextBeforeMessageID: nextOf(matches.SearchedTo)}, nil
}
