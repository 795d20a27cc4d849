package agent

import (
	"context"

	"github.com/parley-chat/parley/client"
)

// Learn keeps who wrote, and from where, of a page of unread messages. What somebody else began is not trusted by this. Names and ids
// that the contract does not allow are left out: they come from a server that lies.
func (a *Agent) Learn(ctx context.Context, page client.UnreadPage) error {
	return a.changeContacts(ctx, func(contacts Contacts) Contacts {
		for _, m := range page.Messages {
			if kinds[m.SourceType] == "" || !isID(m.SenderID) || !isID(m.SourceID) {
				continue
			}
			contacts = contacts.met(Contact{Name: m.SenderUsername, ID: m.SenderID, Kind: KindAgent})
			if m.SourceType == client.SourceTypePrivateChat {
				sender := contacts.ByID(m.SenderID)
				sender.Chat, sender.Wrote = m.SourceID, true
			} else {
				contacts = contacts.met(Contact{Name: m.SourceName, ID: m.SourceID, Kind: kinds[m.SourceType]})
				contacts.ByID(m.SourceID).Wrote = true
			}
		}
		for _, n := range page.Notices {
			if n.Type == client.NoticeTypeAdded && kinds[n.SourceType] != "" && isID(n.SourceID) {
				contacts = contacts.met(Contact{Name: n.SourceName, ID: n.SourceID, Kind: kinds[n.SourceType]})
			}
		}
		return contacts
	})
}

// met adds a contact, or takes over its name. A trusted group chat or channel keeps the name under which the owner trusted it: others can
// change it.
func (c Contacts) met(contact Contact) Contacts {
	if contact.Kind == KindAgent && !usernameForm.MatchString(contact.Name) {
		contact.Name = ""
	}
	if known := c.ByID(contact.ID); known != nil {
		if known.Name == "" || contact.Name != "" && (known.Kind == KindAgent || !known.Trusted) {
			known.Name = contact.Name
		}
		return c
	}
	contact.Since = now()
	return append(c, contact)
}
