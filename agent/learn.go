package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
)

// learn keeps what a successful call shows: which name an id has, and what the caller joined, named or blocked. Names and ids that the
// contract does not allow are left out: they come from a server that lies.
func (a *Agent) learn(ctx context.Context, operation string, arguments map[string]any, body json.RawMessage) error {
	if operation == pollOperation {
		var page client.UnreadPage
		if json.Unmarshal(body, &page) != nil {
			return nil //nolint:nilerr // Decode says so
		}
		return a.changeContacts(ctx, func(contacts Contacts) Contacts { return contacts.received(page) })
	}
	var response object
	_ = json.Unmarshal(body, &response) // Decode says so if it is none
	if did := effect(operation, arguments, response); did != nil {
		return a.changeContacts(ctx, did)
	}
	return nil
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
func effect(operation string, arguments, response object) func(Contacts) Contacts {
	argument := func(name string) string { text, _ := arguments[name].(string); return text }
	change := func(id string, change func(*Contact)) func(Contacts) Contacts {
		return func(contacts Contacts) Contacts { return contacts.changed(id, change) }
	}
	returned := func(name string) string { text, _ := response[name].(string); return text }
	conversation := argument("chat_id") + argument("channel_id")
	rename := func(known *Contact) {
		known.Name, known.Named, known.Joined, known.Admin = argument("name"), true, true, true
	}
	switch operation {
	case "blockAgent", "unblockAgent":
		return change(argument("agent_id"), func(known *Contact) { known.Blocked = operation == "blockAgent" })
	case "subscribeChannel":
		return change(conversation, func(known *Contact) { known.Named, known.Joined = true, true })
	case "requestGroupAccess":
		return change(conversation, func(known *Contact) { known.Asked = time.Now().UTC() })
	case "leaveGroupChat":
		return func(contacts Contacts) Contacts { // its name means it no more
			return slices.DeleteFunc(contacts, func(one Contact) bool { return one.ID == conversation })
		}
	case "deleteGroupChat", "deleteChannel":
		return change(conversation, (*Contact).delete)
	case "transferGroupChat", "transferChannel":
		return change(conversation, func(known *Contact) { known.Named, known.Admin = false, false }) // others name it now
	case "unsubscribeChannel":
		return change(conversation, func(known *Contact) { known.Joined, known.Asked = false, time.Time{} })
	case "sendPrivateMessage":
		return change(argument("recipient_agent_id"), func(known *Contact) { known.Chat = returned("chat_id") })
	case "sendGroupMessage", "listGroupMessages", "getGroupChat":
		return change(conversation, func(known *Contact) { // only members can
			known.Name, known.Joined = cmp.Or(known.Name, returned("name")), true
		})
	case "createGroupChat", "createChannel":
		return change(returned("chat_id")+returned("channel_id"), rename)
	case "editGroupChat", "editChannel":
		if argument("name") != "" {
			return change(conversation, rename)
		}
	}
	return nil
}

func (c *Contact) delete() { *c = Contact{ID: c.ID, Kind: c.Kind, Name: c.Name, Deleted: true} }

// received keeps who wrote, and from where, of a page of unread messages, and what the notices name and did to the caller.
func (c Contacts) received(page client.UnreadPage) Contacts {
	for _, n := range page.Notices { // before the messages: a notice has the name of its time
		if kindFrom[n.SourceType] == "" || !isID(n.SourceID) {
			continue
		}
		c = c.met(Contact{Name: n.SourceName, ID: n.SourceID, Kind: kindFrom[n.SourceType]})
		switch known := c.ByID(n.SourceID); n.Type {
		case client.NoticeTypeMadeAdmin:
			known.Admin, known.Joined = true, known.Joined || known.Kind == KindGroup // of a channel it need not be a subscriber
		case client.NoticeTypeAdded:
			known.Joined = true
		case client.NoticeTypeDeleted:
			known.delete()
		case client.NoticeTypeRemoved, client.NoticeTypeBanned:
			known.Joined, known.Asked = false, time.Time{}
		}
	}
	for _, m := range page.Messages {
		if kindFrom[m.SourceType] == "" || !isID(m.SenderID) || !isID(m.SourceID) {
			continue
		}
		c = c.met(Contact{Name: m.SenderUsername, ID: m.SenderID, Kind: KindAgent})
		if m.SourceType == client.SourceTypePrivateChat {
			c.ByID(m.SenderID).Chat = m.SourceID
		} else {
			c = c.met(Contact{Name: m.SourceName, ID: m.SourceID, Kind: kindFrom[m.SourceType]})
			c.ByID(m.SourceID).Joined = true
		}
	}
	return c
}

// met adds a contact, or takes over its name. A group chat or channel whose name the caller gave or used keeps it: others can change it.
func (c Contacts) met(contact Contact) Contacts {
	if contact.Kind == KindAgent && !usernameForm.MatchString(contact.Name) {
		contact.Name = ""
	}
	if known := c.ByID(contact.ID); known != nil {
		if known.Name == "" || contact.Name != "" && (known.Kind == KindAgent || !known.Named) {
			known.Name = contact.Name
		}
		return c
	}
	return append(c, contact)
}
