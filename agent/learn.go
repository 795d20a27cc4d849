package agent

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/parley-chat/parley/client"
)

// learn keeps what a successful call shows: which name an id has, who wrote, and whom this agent joined, named or blocked. Nobody is
// trusted by this. Names and ids that the contract does not allow are left out: they come from a server that lies.
func (a *Agent) learn(ctx context.Context, operation string, arguments map[string]any, body json.RawMessage) error {
	if operation == pollOperation {
		var page client.UnreadPage
		if json.Unmarshal(body, &page) != nil {
			return nil //nolint:nilerr // Decode says so
		}
		return a.changeContacts(ctx, func(contacts Contacts) Contacts { return contacts.wrote(page) })
	}
	var response any
	if json.Unmarshal(body, &response) != nil {
		return nil //nolint:nilerr // Decode says so
	}
	listed := named(response, nil)
	did := effect(operation, arguments, response)
	if did == nil && (listed == nil || operation == operationGetOwnAgent || operation == operationCreateAccount) {
		return nil
	}
	return a.changeContacts(ctx, func(contacts Contacts) Contacts {
		for _, one := range listed {
			if len(contacts) < maxListed || contacts.ByID(one.ID) != nil {
				contacts = contacts.met(one)
			}
		}
		if did != nil {
			contacts = did(contacts)
		}
		return contacts
	})
}

// maxListed is the number of contacts above which listings add none.
const maxListed = 2_000

// named appends the agents and conversations that a response has with id and name.
func named(response any, found []Contact) []Contact {
	switch v := response.(type) {
	case []any:
		for _, each := range v {
			found = named(each, found)
		}
	case map[string]any:
		for _, field := range []struct{ id, name, kind string }{
			{"agent_id", "username", KindAgent}, {"sender_id", "sender_username", KindAgent}, {"chat_id", "name", KindGroup},
			{"channel_id", "name", KindChannel},
		} {
			id, _ := v[field.id].(string)
			name, _ := v[field.name].(string)
			if name != "" && isID(id) && kindOf(id) == field.kind {
				found = append(found, Contact{Name: name, ID: id, Kind: field.kind})
			}
		}
		for _, each := range v {
			found = named(each, found)
		}
	}
	return found
}

// kindOf returns the kind of a contact with an id. A private chat is no contact.
func kindOf(id string) string {
	kind, _, _ := strings.Cut(id, "_")
	if kind == "chat" {
		return KindGroup
	}
	return kind
}

// effect returns the change of the contacts by what a call did, or nil.
func effect(operation string, arguments map[string]any, response any) func(Contacts) Contacts {
	argument := func(name string) string { text, _ := arguments[name].(string); return text }
	change := func(id string, change func(*Contact)) func(Contacts) Contacts {
		return func(contacts Contacts) Contacts {
			if isID(id) {
				contacts = contacts.met(Contact{ID: id, Kind: kindOf(id)})
				change(contacts.ByID(id))
			}
			return contacts
		}
	}
	fields, _ := response.(map[string]any)
	returned := func(name string) string { text, _ := fields[name].(string); return text }
	conversation := argument("chat_id") + argument("channel_id")
	rename := func(known *Contact) { known.Name, known.Named, known.Own = argument("name"), true, true }
	switch operation {
	case "blockAgent", "unblockAgent":
		return change(argument("agent_id"), func(known *Contact) { known.Blocked = operation == "blockAgent" })
	case "subscribeChannel":
		return change(argument("channel_id"), func(known *Contact) { known.Named, known.Ended = true, false })
	case "leaveGroupChat", "deleteGroupChat", "deleteChannel":
		// Its name means it no more.
		return change(conversation, func(known *Contact) { known.Trusted, known.Named, known.Wrote, known.Ended = false, false, false, true })
	case "requestGroupAccess":
		return change(argument("chat_id"), func(known *Contact) { known.Ended = false }) // its name is a stranger's
	case "sendPrivateMessage":
		return change(argument("recipient_agent_id"), func(known *Contact) { known.Chat = returned("chat_id") })
	case "createGroupChat", "createChannel":
		return change(returned("chat_id")+returned("channel_id"), rename)
	case "editGroupChat", "editChannel":
		if argument("name") != "" {
			return change(conversation, rename)
		}
	}
	return nil
}

// wrote keeps who wrote, and from where, of a page of unread messages.
func (c Contacts) wrote(page client.UnreadPage) Contacts {
	for _, n := range page.Notices { // before the messages: a notice has the name of its time
		if n.Type == client.NoticeTypeAdded && kindFrom(n.SourceType) != "" && isID(n.SourceID) {
			c = c.met(Contact{Name: n.SourceName, ID: n.SourceID, Kind: kindFrom(n.SourceType)})
			c.ByID(n.SourceID).Ended = false
		}
	}
	for _, m := range page.Messages {
		if kindFrom(m.SourceType) == "" || !isID(m.SenderID) || !isID(m.SourceID) {
			continue
		}
		c = c.met(Contact{Name: m.SenderUsername, ID: m.SenderID, Kind: KindAgent})
		if m.SourceType == client.SourceTypePrivateChat {
			sender := c.ByID(m.SenderID)
			sender.Chat, sender.Wrote = m.SourceID, true
		} else {
			c = c.met(Contact{Name: m.SourceName, ID: m.SourceID, Kind: kindFrom(m.SourceType)})
			source := c.ByID(m.SourceID)
			source.Wrote, source.Ended = true, false
		}
	}
	return c
}

// met adds a contact, or takes over its name. A group chat or channel that the owner trusts or named keeps its name: others can change it.
func (c Contacts) met(contact Contact) Contacts {
	if contact.Kind == KindAgent && !usernameForm.MatchString(contact.Name) {
		contact.Name = ""
	}
	if known := c.ByID(contact.ID); known != nil {
		if known.Name == "" || contact.Name != "" && (known.Kind == KindAgent || !known.Trusted && !known.Named && !known.Own) {
			known.Name = contact.Name
		}
		return c
	}
	contact.Since = now()
	return append(c, contact)
}
