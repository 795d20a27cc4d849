package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// PrivatePair is the private chat of two agents. There is one for each pair. LowAgent sorts before HighAgent.
type PrivatePair struct {
	LowAgent       uuid.UUID
	HighAgent      uuid.UUID
	ConversationID uuid.UUID
}

// pairOf sorts two agents in the order of a private_pairs row.
func pairOf(a, b uuid.UUID) PrivatePair {
	if bytes.Compare(a[:], b[:]) > 0 {
		a, b = b, a
	}
	return PrivatePair{LowAgent: a, HighAgent: b}
}

// PrivateChat returns the private chat of two agents, or uuid.Nil if there is none yet.
func (s *Store) PrivateChat(ctx context.Context, a, b uuid.UUID) (uuid.UUID, error) {
	pair := pairOf(a, b)
	key := [2]uuid.UUID{pair.LowAgent, pair.HighAgent}
	if chat, ok := s.chats.Get(key); ok {
		return chat, nil
	}
	chat, err := s.findPrivateChat(ctx, pair)
	if chat != uuid.Nil {
		s.chats.Add(key, chat)
	}
	return chat, err
}

// findPrivateChat is PrivateChat without the cache, which must not have a chat that is not committed.
func (r *Reader) findPrivateChat(ctx context.Context, pair PrivatePair) (uuid.UUID, error) {
	found, err := gorm.G[PrivatePair](r.db).Where("low_agent = ? AND high_agent = ?", pair.LowAgent, pair.HighAgent).Take(ctx)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return uuid.Nil, nil
	}
	if err != nil {
		return uuid.Nil, fmt.Errorf("find private chat: %w", err)
	}
	return found.ConversationID, nil
}

// openPrivateChat returns the chat for the private message, and creates it if there is none.
func (tx *Tx) openPrivateChat(ctx context.Context, message OutgoingMessage) (uuid.UUID, error) {
	if message.toSelf() {
		return uuid.Nil, ErrNothingToSelf
	}
	if err := tx.checkBlocks(ctx, message.Sender, message.To); err != nil {
		return uuid.Nil, err
	}
	if err := tx.checkUsable(ctx, message.To); err != nil {
		return uuid.Nil, err
	}
	if chat, err := tx.findPrivateChat(ctx, pairOf(message.Sender, message.To)); err != nil || chat != uuid.Nil {
		return chat, err
	}
	if err := tx.CheckAgents(ctx, []uuid.UUID{message.Sender, message.To}); err != nil {
		return uuid.Nil, err
	}
	return tx.createPrivateChat(ctx, pairOf(message.Sender, message.To))
}

// createPrivateChat creates the chat of two existing agents, unless another transaction creates it first.
func (tx *Tx) createPrivateChat(ctx context.Context, pair PrivatePair) (uuid.UUID, error) {
	chat := Conversation{Kind: KindPrivate, MemberCount: 2}
	var err error
	if chat.ID, err = uuid.NewV7(); err != nil {
		return uuid.Nil, err
	}
	pair.ConversationID = chat.ID
	if err := gorm.G[Conversation](tx.db).Create(ctx, &chat); err != nil {
		return uuid.Nil, fmt.Errorf("create private chat: %w", err)
	}
	// If two sends race, the second one waits here for the first and then finds its chat.
	created := tx.gorm(ctx, &PrivatePair{}).Clauses(clause.OnConflict{DoNothing: true}).Create(&pair)
	if created.Error != nil {
		return uuid.Nil, fmt.Errorf("create private chat: %w", created.Error)
	}
	if created.RowsAffected == 0 {
		if _, err := gorm.G[Conversation](tx.db).Where("id = ?", chat.ID).Delete(ctx); err != nil {
			return uuid.Nil, fmt.Errorf("create private chat: %w", err)
		}
		return tx.findPrivateChat(ctx, pair)
	}
	members := []Membership{
		{ConversationID: chat.ID, AgentID: pair.LowAgent, Status: StatusMember, JoinedAt: chat.CreatedAt},
		{ConversationID: chat.ID, AgentID: pair.HighAgent, Status: StatusMember, JoinedAt: chat.CreatedAt},
	}
	if err := gorm.G[Membership](tx.db).CreateInBatches(ctx, &members, len(members)); err != nil {
		return uuid.Nil, fmt.Errorf("create private chat: %w", err)
	}
	return chat.ID, nil
}
