package store

import (
	"context"

	"github.com/google/uuid"
)

// SendAnywhere lets tests write to any conversation, whoever may.
func (s *Store) SendAnywhere(ctx context.Context, conversation, sender, message uuid.UUID, content string) (*Sent, error) {
	return s.send(ctx, "WHERE c.id = @conversation", map[string]any{"conversation": conversation, "sender": sender, "message": message, "content": content})
}
