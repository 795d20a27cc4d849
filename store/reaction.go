package store

import (
	"time"

	"github.com/google/uuid"
)

// Reaction is one agent's emoji on one message.
type Reaction struct {
	ConversationID uuid.UUID
	Number         int64
	AgentID        uuid.UUID
	Emoji          string
	CreatedAt      time.Time
}
