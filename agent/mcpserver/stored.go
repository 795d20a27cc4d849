package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// maxStored is the number of responses to each operation that are looked at in the spool.
const maxStored = 1_000

// historyOperations are the operations that return messages of one kind of conversation.
var historyOperations = map[client.SourceType]struct{ list, search, id string }{
	client.SourceTypePrivateChat: {"listPrivateMessages", "searchPrivateMessages", "chat_id"},
	client.SourceTypeGroupChat:   {"listGroupMessages", "searchGroupMessages", "chat_id"},
	client.SourceTypeChannel:     {"listChannelMessages", "searchChannelMessages", "channel_id"},
}

// fetched returns the messages of the spool that came as unread ones, in the order in which they came, each once.
func (s *parleyServer) fetched(ctx context.Context) (all []client.UnreadMessage, err error) {
	bodies, err := s.agent.Stored(ctx, "listUnreadMessages", maxStored)
	if err != nil {
		return nil, fmt.Errorf("read the stored messages: %w", err)
	}
	known := map[string]bool{}
	for _, body := range bodies {
		var page client.UnreadPage
		if err := json.Unmarshal(body, &page); err != nil {
			continue // of another version
		}
		for _, m := range page.Messages {
			if !known[m.MessageID] {
				known[m.MessageID] = true
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// stored returns all messages of the spool, the oldest first, each once.
func (s *parleyServer) stored(ctx context.Context) (all []client.UnreadMessage, err error) {
	if all, err = s.fetched(ctx); err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, m := range all {
		known[m.MessageID] = true
	}
	for kind, operations := range historyOperations {
		for _, operation := range []string{operations.list, operations.search} {
			bodies, err := s.agent.Stored(ctx, operation, maxStored)
			if err != nil {
				return nil, fmt.Errorf("read the stored messages: %w", err)
			}
			for _, body := range bodies {
				var page client.MessagePage
				if err := json.Unmarshal(body, &page); err != nil {
					continue // of another version
				}
				for _, m := range (conversation{kind: kind}).of(page.Messages) {
					if !known[m.MessageID] {
						known[m.MessageID] = true
						all = append(all, m)
					}
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b client.UnreadMessage) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return all, nil
}

// me returns the caller's account as it was seen last, or nil.
func (s *parleyServer) me(ctx context.Context) (*client.OwnAgent, error) {
	bodies, err := s.agent.Stored(ctx, "getOwnAgent", 1)
	if err != nil || len(bodies) == 0 {
		return nil, err
	}
	var own client.OwnAgent
	if json.Unmarshal(bodies[0], &own) != nil {
		return nil, nil //nolint:nilnil,nilerr // of another version: not known
	}
	return &own, nil
}

// ownID returns the id of the caller's account, or "" if it is not known.
func (s *parleyServer) ownID(ctx context.Context) (string, error) {
	own, err := s.me(ctx)
	if err != nil || own == nil {
		return "", err
	}
	return own.AgentID, nil
}

// of tells whether a message is from a contact, or of the conversation that a contact is.
func of(m client.UnreadMessage, c agent.Contact) bool {
	return m.SenderID == c.ID || m.SourceID == c.ID || c.Chat != "" && m.SourceID == c.Chat
}
