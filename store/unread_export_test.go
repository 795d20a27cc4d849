package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// SendAnywhere sends to a conversation of any kind; to a private chat, its other agent.
func (s *Store) SendAnywhere(ctx context.Context, conversation, sender, message uuid.UUID, content string) (*Sent, error) {
	place, err := lookOne[struct {
		Kind string
		To   uuid.UUID
	}](ctx, s, `
		SELECT c.kind, coalesce((SELECT m.agent_id FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id <> @sender AND c.kind = 'private'), c.id) AS to
		FROM conversations c WHERE c.id = @conversation`, pgx.NamedArgs{"conversation": conversation, "sender": sender})
	if err != nil {
		return nil, err
	}
	return s.send(ctx, outgoing{place.Kind, place.To, sender, message, content})
}
