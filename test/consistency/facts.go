package consistency

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/server"
)

// Facts is what the database holds at the end: the order of the messages of each conversation. With it a send is an operation with a known
// place in the order, and the check asks whether the calls can have happened in this order.
type Facts struct {
	byID      map[string]message
	byContent map[string][]message
	senders   map[string]map[int64]string // of each conversation, by number
}

type message struct {
	conversation, sender string
	number               int64
}

// Load reads the facts about messages that were sent since a time.
func Load(ctx context.Context, databaseURL string, since time.Time) (*Facts, error) {
	database, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = database.Close(context.WithoutCancel(ctx)) }()
	rows, err := database.Query(ctx, "SELECT id, conversation_id, number, sender_id, content FROM messages WHERE created_at >= $1",
		since)
	if err != nil {
		return nil, err
	}
	f := &Facts{byID: map[string]message{}, byContent: map[string][]message{}, senders: map[string]map[int64]string{}}
	var id, conversation, sender uuid.UUID
	var number int64
	var content string
	_, err = pgx.ForEachRow(rows, []any{&id, &conversation, &number, &sender, &content}, func() error {
		m := message{conversation.String(), server.AgentID(sender), number}
		f.byID[server.MessageID(id)] = m
		f.byContent[content] = append(f.byContent[content], m)
		if f.senders[m.conversation] == nil {
			f.senders[m.conversation] = map[int64]string{}
		}
		f.senders[m.conversation][number] = m.sender
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the messages: %w", err)
	}
	return f, nil
}

// sent returns the message that a call has sent, and how many have its content.
func (f *Facts) sent(k *call) (m message, there bool, times int) {
	alike := f.byContent[k.asked.Content]
	if m, there = f.byID[k.response.MessageID]; !there && len(alike) > 0 && k.asked.Content != "" {
		m, there = alike[0], true
	}
	return m, there, len(alike)
}

// foreign returns the numbers of the messages of a conversation that others than the agent have sent, in order.
func (f *Facts) foreign(conversation, agent string) []int64 {
	var numbers []int64
	for number, sender := range f.senders[conversation] {
		if sender != agent {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}
