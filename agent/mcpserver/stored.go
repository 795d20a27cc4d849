package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// unreadOperation fetches unread messages. Its stored responses have them in the order in which they came.
const unreadOperation = "listUnreadMessages"

// stored returns all stored messages, the oldest first, each once.
func (c *call) stored() ([]client.UnreadMessage, error) {
	operations := []string{unreadOperation}
	for _, of := range agent.OperationsOf {
		operations = append(operations, of.List, of.Search)
	}
	all, err := c.messagesFrom(operations...)
	slices.SortStableFunc(all, func(a, b client.UnreadMessage) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	return all, err
}

// messagesFrom returns the messages in responses to operations, each once.
func (c *call) messagesFrom(operations ...string) (all []client.UnreadMessage, err error) {
	responses, err := c.agent.Responses(c.ctx, operations...)
	if err != nil {
		return nil, fmt.Errorf("read the stored messages: %w", err)
	}
	known := map[string]bool{}
	for _, response := range responses {
		for _, m := range messagesOf(response) {
			if !known[m.MessageID] {
				known[m.MessageID] = true
				all = append(all, m)
			}
		}
	}
	return all, nil
}

// messagesOf returns the messages of a response. Those of a history do not say where they are from; the call did.
func messagesOf(response agent.PaidResponse) []client.UnreadMessage {
	for _, of := range agent.OperationsOf {
		if response.Operation == of.List || response.Operation == of.Search {
			var page client.MessagePage
			_ = json.Unmarshal(response.Body, &page) // a response of another version has none
			return conversation{kind: of.Source, id: response.Peer}.of(page.Messages)
		}
	}
	var page client.UnreadPage
	_ = json.Unmarshal(response.Body, &page) // a response of another version has none
	return page.Messages
}

// ownID returns the id of the caller's account, or "" if it is not known.
func (c *call) ownID() (string, error) {
	own, err := c.agent.Own(c.ctx)
	if err != nil || own == nil {
		return "", err
	}
	return own.AgentID, nil
}

// of reports whether a message is from a contact, or of the conversation that a contact is.
func of(m client.UnreadMessage, c agent.Contact) bool {
	return m.SenderID == c.ID || m.SourceID == c.ID || c.Chat != "" && m.SourceID == c.Chat
}
