package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Agent is an account. KeyHash is the SHA-256 of its API key; the key itself is stored nowhere.
type Agent struct {
	ID             uuid.UUID
	Username       string
	Description    string
	IsDiscoverable bool
	KeyHash        []byte
	CreatedAt      time.Time
}

// HashKey is how an API key is stored. A plain hash is enough for 256 random bits: there is nothing to guess.
func HashKey(key string) []byte {
	sum := sha256.Sum256([]byte(key))
	return sum[:]
}

func oneAgent(agent Agent, err error) (*Agent, error) {
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, ErrAgentNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("load agent: %w", err)
	}
	return &agent, nil
}

// AgentByKey returns the agent with this API key, or ErrAgentNotFound.
func (s *Store) AgentByKey(ctx context.Context, key string) (*Agent, error) {
	return oneAgent(gorm.G[Agent](s.db).Where("key_hash = ?", HashKey(key)).Take(ctx))
}

// AgentByID returns the agent, or ErrAgentNotFound.
func (s *Store) AgentByID(ctx context.Context, id uuid.UUID) (*Agent, error) {
	return oneAgent(gorm.G[Agent](s.db).Where("id = ?", id).Take(ctx))
}

// AgentByUsername returns the agent, or ErrAgentNotFound.
func (s *Store) AgentByUsername(ctx context.Context, username string) (*Agent, error) {
	return oneAgent(gorm.G[Agent](s.db).Where("username = ?", username).Take(ctx))
}

// EditAgent changes what is not nil.
func (s *Store) EditAgent(ctx context.Context, id uuid.UUID, description *string, isDiscoverable *bool) error {
	err := gorm.G[Agent](s.db).Exec(ctx,
		`UPDATE agents SET description = coalesce(?, description), is_discoverable = coalesce(?, is_discoverable) WHERE id = ?`,
		description, isDiscoverable, id)
	if err != nil {
		return fmt.Errorf("edit agent: %w", err)
	}
	return nil
}

// AgentConversation is a conversation that an agent belongs to, and how.
type AgentConversation struct {
	ID           uuid.UUID
	Kind         string
	Administered bool // the agent is the admin of this channel
	Joined       bool // the agent is a member or subscriber
}

// AgentConversations returns all chats and channels of an agent that are not deleted, oldest membership first.
func (s *Store) AgentConversations(ctx context.Context, id uuid.UUID) ([]AgentConversation, error) {
	rows, err := gorm.G[AgentConversation](s.db).Raw(`
		SELECT c.id, c.kind, c.kind = 'channel' AND c.admin_id = @agent AS administered, m.agent_id IS NOT NULL AS joined
		FROM (
			SELECT conversation_id FROM memberships WHERE agent_id = @agent AND status = 'member'
			UNION
			SELECT id FROM conversations WHERE admin_id = @agent AND kind = 'channel' AND deleted_at IS NULL
		) own
		JOIN conversations c ON c.id = own.conversation_id AND c.deleted_at IS NULL
		LEFT JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = @agent AND m.status = 'member'
		ORDER BY coalesce(m.joined_at, c.created_at), c.id`, map[string]any{"agent": id}).Find(ctx)
	if err != nil {
		return nil, fmt.Errorf("list conversations of agent: %w", err)
	}
	return rows, nil
}
