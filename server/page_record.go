package server

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// pageRecord is a page of messages as the ledger stores it: which messages it had, and the response without them. A repeated payment gets
// the page made from it. So storing a page takes a few bytes for each message, however long the messages are, and what was removed from
// a conversation is in no stored response. One of List, Search and Unread is set.
type pageRecord struct {
	Conversations []uuid.UUID                            `json:"c,omitempty"`
	Messages      [][2]int64                             `json:"m,omitempty"` // index of the conversation, number of the message
	List          *gen.MessagePage                       `json:"list,omitempty"`
	Search        *gen.MessageSearchPage                 `json:"search,omitempty"`
	Unread        *gen.ListUnreadMessages200JSONResponse `json:"unread,omitempty"`
}

// recordPage sets what the ledger stores of a page, whose messages are not set yet.
func (c *call) recordPage(record pageRecord, messages []store.SentMessage) {
	indexes := map[uuid.UUID]int64{}
	for _, message := range messages {
		index, found := indexes[message.ConversationID]
		if !found {
			index = int64(len(record.Conversations))
			indexes[message.ConversationID] = index
			record.Conversations = append(record.Conversations, message.ConversationID)
		}
		record.Messages = append(record.Messages, [2]int64{index, message.Number})
	}
	c.record, _ = json.Marshal(record) // cannot fail: the page is a response
}

// repeatPage makes a page again from what the ledger stored of it. Messages are as they are now, without those that retention has removed,
// and without reactions that came after the page: the payment buys nothing newer.
func (s *Server) repeatPage(ctx context.Context, stored []byte, delivered time.Time) ([]byte, error) {
	var record pageRecord
	if err := json.Unmarshal(stored, &record); err != nil {
		return nil, fmt.Errorf("read a stored page: %w", err)
	}
	refs := make([]store.MessageRef, len(record.Messages))
	for i, message := range record.Messages {
		refs[i] = store.MessageRef{Conversation: record.Conversations[message[0]], Number: message[1]}
	}
	messages, err := s.store.MessagesAt(ctx, refs)
	if err != nil {
		return nil, err
	}
	if page := record.Unread; page != nil {
		page.Messages = each(messages, toUnread)
		return json.Marshal(page)
	}
	sent := sentOf(messages)
	reactions, err := s.store.Reactions(ctx, sent, &delivered)
	if err != nil {
		return nil, err
	}
	shown := toMessages(sent, reactions)
	if page := record.Search; page != nil {
		page.Messages = shown
		return json.Marshal(page)
	}
	record.List.Messages = shown
	return json.Marshal(record.List)
}

func sentOf(messages []store.UnreadMessage) []store.SentMessage {
	return each(messages, func(message store.UnreadMessage) store.SentMessage { return message.SentMessage })
}
