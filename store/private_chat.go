package store

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"
)

// PrivatePair is the one private chat of two agents; LowAgent sorts before HighAgent.
type PrivatePair struct {
	LowAgent       uuid.UUID
	HighAgent      uuid.UUID
	ConversationID uuid.UUID
}

// SendPrivateMessage appends a message to the private chat of the two agents, and creates the chat if there is none:
// one round trip, four for the first message. ErrNothingToSelf, ErrBlocked, ErrBlocking, ErrAgentNotFound.
func (s *Store) SendPrivateMessage(ctx context.Context, sender, recipient, message uuid.UUID, content string) (*Sent, error) {
	if sender == recipient {
		return nil, ErrNothingToSelf
	}
	low, high := pair(sender, recipient)
	for range 2 {
		sent, err := s.send(ctx, outgoing{KindPrivate, recipient, sender, message, content})
		if sent != nil || err != nil {
			return sent, err
		}
		// Nothing was selected: one of them has blocked the other, or there is no chat yet.
		if err := s.CheckBlocks(ctx, sender, recipient); err != nil {
			return nil, err
		}
		if err := s.createPrivateChat(ctx, low, high); err != nil {
			return nil, err
		}
	}
	return nil, ErrAgentNotFound
}

// maxCachedChats bounds what this server remembers of private chats: some ten MB.
const maxCachedChats = 1 << 16

// chatCache keeps the private chats of pairs of agents. A pair keeps its chat for ever.
type chatCache struct {
	mu  sync.Mutex
	all map[[2]uuid.UUID]uuid.UUID
}

// privateChat returns the private chat of two agents, uuid.Nil if there is none yet.
func (s *Store) privateChat(ctx context.Context, a, b uuid.UUID) (uuid.UUID, error) {
	low, high := pair(a, b)
	c := s.chats
	c.mu.Lock()
	chat := c.all[[2]uuid.UUID{low, high}]
	c.mu.Unlock()
	if chat != uuid.Nil {
		return chat, nil
	}
	found, err := look[uuid.UUID](ctx, s, `SELECT conversation_id FROM private_pairs WHERE low_agent = @low AND high_agent = @high`, pgx.NamedArgs{"low": low, "high": high})
	if err != nil || len(found) == 0 {
		return uuid.Nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxCachedChats {
		c.all = map[[2]uuid.UUID]uuid.UUID{}
	}
	c.all[[2]uuid.UUID{low, high}] = found[0]
	return found[0], nil
}

// pair sorts two agents as a private_pairs row has them.
func pair(a, b uuid.UUID) (low, high uuid.UUID) {
	if bytes.Compare(a[:], b[:]) > 0 {
		return b, a
	}
	return a, b
}

// createPrivateChat creates the pair's chat unless there is one already, or one of the agents does not exist.
func (s *Store) createPrivateChat(ctx context.Context, low, high uuid.UUID) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	// The pair comes first: of two racing sends the second waits for the first, finds its chat and creates nothing.
	err = gorm.G[PrivatePair](s.db).Exec(ctx, `
		WITH pair AS (
			INSERT INTO private_pairs (low_agent, high_agent, conversation_id)
			SELECT l.id, h.id, @id FROM agents l, agents h WHERE l.id = @low AND h.id = @high
			ON CONFLICT (low_agent, high_agent) DO NOTHING RETURNING *
		), chat AS (
			INSERT INTO conversations (id, kind, member_count, created_at)
			SELECT conversation_id, 'private', 2, clock_timestamp() FROM pair
		)
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT conversation_id, unnest(ARRAY[low_agent, high_agent]), 'member', 0, 0, clock_timestamp() FROM pair`,
		map[string]any{"id": id, "low": low, "high": high})
	if err != nil {
		return fmt.Errorf("create private chat: %w", err)
	}
	return nil
}
