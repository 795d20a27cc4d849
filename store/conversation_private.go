package store

import (
	"bytes"
	"context"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
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
	found, err := gorm.G[PrivatePair](r.db).Where("low_agent = ? AND high_agent = ?", pair.LowAgent, pair.HighAgent).Find(ctx)
	if err != nil || len(found) == 0 {
		return uuid.Nil, wrap("find private chat", err)
	}
	return found[0].ConversationID, nil
}

// openPrivateChat returns the chat for the private message, and creates it if there is none.
func (tx *Tx) openPrivateChat(ctx context.Context, message OutgoingMessage) (uuid.UUID, error) {
	if message.toSelf() {
		return uuid.Nil, ErrNothingToSelf
	}
	chat, err := tx.findPrivateChat(ctx, pairOf(message.Sender, message.To))
	if err != nil || chat != uuid.Nil {
		return chat, err
	}
	check := &messageCheck{message: message}
	if err := checkAll(ctx, tx, batchOf(check)); err != nil {
		return uuid.Nil, err
	}
	if err := check.refusal(); err != nil {
		return uuid.Nil, err
	}
	if err := tx.CheckAgents(ctx, []uuid.UUID{message.Sender, message.To}); err != nil {
		return uuid.Nil, err
	}
	return tx.createPrivateChat(ctx, pairOf(message.Sender, message.To))
}

// CheckNotRepeated returns ErrAlreadyRequested if the newest message of a chat is a request for access and the one before it is the same.
// Send the request first: then the chat is locked.
func (tx *Tx) CheckNotRepeated(ctx context.Context, chat uuid.UUID) error {
	newest, err := gorm.G[Message](tx.db).Where("conversation_id = ?", chat).Order("number DESC").Limit(2).Find(ctx)
	if err != nil || len(newest) < 2 {
		return wrap("compare requests", err)
	}
	now, before := newest[0], newest[1]
	if now.About != nil && before.About != nil && *now.About == *before.About && now.SenderID == before.SenderID &&
		now.Content == before.Content {
		return ErrAlreadyRequested
	}
	return nil
}

// createPrivateChat creates the chat of two existing agents. If another transaction creates it first, the statement waits for that one and
// adds nothing.
func (tx *Tx) createPrivateChat(ctx context.Context, pair PrivatePair) (uuid.UUID, error) {
	chat := newID()
	created, err := exec(ctx, tx, `
		WITH pair AS (
			INSERT INTO private_pairs (low_agent, high_agent, conversation_id) VALUES (@low, @high, @chat) ON CONFLICT DO NOTHING
				RETURNING conversation_id
		), chat AS (
			INSERT INTO conversations (id, kind, member_count, created_at) SELECT conversation_id, 'private', 2, @now FROM pair RETURNING id,
				created_at
		)
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, agent_id, 'member', 0, 0, c.created_at FROM chat c CROSS JOIN unnest(ARRAY[CAST(@low AS uuid), @high]) AS agent_id`,
		named{"low": pair.LowAgent, "high": pair.HighAgent, "chat": chat, "now": tx.Now()})
	if err != nil {
		return uuid.Nil, fmt.Errorf("create private chat: %w", err)
	}
	if created == 0 {
		return tx.findPrivateChat(ctx, pair)
	}
	return chat, nil
}
