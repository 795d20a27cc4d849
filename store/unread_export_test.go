package store

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// SendAnywhere sends to a conversation of any kind; to a private chat, its other agent.
func (s *Store) SendAnywhere(ctx context.Context, conversation, sender, message uuid.UUID, content string) (*Sent, error) {
	out, err := s.outgoing(ctx, conversation, sender, message, content)
	if err != nil {
		return nil, err
	}
	return s.send(ctx, out)
}

// SendAtOnce sends a message of each sender to the conversation in the same place, all in one statement.
func (s *Store) SendAtOnce(ctx context.Context, conversations, senders []uuid.UUID) error {
	var all []outgoing
	for i, conversation := range conversations {
		out, err := s.outgoing(ctx, conversation, senders[i], uuid.Must(uuid.NewV7()), "text")
		if err != nil {
			return err
		}
		all = append(all, out)
	}
	rows, err := find[placed](ctx, s, sendMessages("SKIP LOCKED", false), sendValues(all)...)
	for i, row := range rows {
		if row.Number == 0 || row.ConversationID != conversations[i] {
			err = errors.Join(err, errors.New("a message was not sent, or elsewhere"))
		}
	}
	return err
}

func (s *Store) outgoing(ctx context.Context, conversation, sender, message uuid.UUID, content string) (outgoing, error) {
	place, err := lookOne[struct {
		Kind string
		To   uuid.UUID
	}](ctx, s, `
		SELECT c.kind, coalesce((SELECT m.agent_id FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id <> @sender AND c.kind = 'private'), c.id) AS to
		FROM conversations c WHERE c.id = @conversation`, pgx.NamedArgs{"conversation": conversation, "sender": sender})
	if err != nil {
		return outgoing{}, err
	}
	return outgoing{place.Kind, place.To, sender, message, content}, nil
}
