package agent

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"
)

// Contact is an agent, a group chat or a channel whose name is remembered.
type Contact struct {
	// Name is a username, or the name of a group chat or channel. Names of these are not unique, and others choose them.
	Name string `json:"name"`
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Chat is the id of the private chat with an agent, if it is known.
	Chat string `json:"chat,omitempty"`
	// Named is true if the caller gave or used the name: it then means this conversation, and nobody else changes it.
	Named bool `json:"named,omitempty"`
	// Joined is true if the caller belongs to the conversation, Admin if it is the admin, Asked when it asked for access, Blocked if it has
	// blocked the agent.
	Joined  bool      `json:"joined,omitempty"`
	Admin   bool      `json:"admin,omitempty"`
	Asked   time.Time `json:"asked,omitzero"`
	Blocked bool      `json:"blocked,omitempty"`
	// Deleted is true if nothing has the id any more: its name can mean another conversation.
	Deleted bool `json:"deleted,omitempty"`

	shown *Result // of the call that looked it up just now, or nil
}

func (c Contact) String() string {
	switch {
	case c.Name == "":
		return PlainWord(c.ID)
	case c.Kind == KindChannel:
		return "#" + VisibleName(c.Name)
	}
	return VisibleName(c.Name)
}

type Contacts []Contact

func ambiguous(name string, ids []string) error {
	return failf(ExitUsage, "ambiguous_name", "", "%s is the name of several; use an id: %s", VisibleName(name), strings.Join(ids, ", "))
}

// ByID returns the contact with an id, which may also be the id of a private chat, or nil.
func (c Contacts) ByID(id string) *Contact {
	for i := range c {
		if id != "" && (c[i].ID == id || c[i].Chat == id) {
			return &c[i]
		}
	}
	return nil
}

func (c Contacts) NameOf(id string) string {
	if known := c.ByID(id); known != nil {
		return known.String()
	}
	return PlainWord(id)
}

// named returns the contact of a kind with a name for which a condition holds, or none: first one that the caller named, if it belongs to
// no other group chat of that name. It fails if there are several.
func (c Contacts) named(kind, name string, holds func(Contact) bool) (found Contact, err error) {
	c = slices.DeleteFunc(slices.Clone(c), func(one Contact) bool { return one.Kind != kind || one.Name != name || one.Deleted })
	if slices.ContainsFunc(c, func(one Contact) bool { return one.Named }) {
		holds = func(one Contact) bool { return one.Named || one.Joined && kind == KindGroup }
	}
	var ids []string
	for _, one := range c {
		if holds(one) {
			found, ids = one, append(ids, one.ID)
		}
	}
	if len(ids) > 1 {
		return Contact{}, ambiguous(name, ids)
	}
	return found, nil
}

func (a *Agent) Contacts() (Contacts, error) {
	return loadSetting[Contacts](context.Background(), a.ledger.db, contactsSetting, nil)
}

// ChangeContact changes the contact with an id, or adds it. An id that is not of the contract's form is not added.
func (a *Agent) ChangeContact(ctx context.Context, id string, change func(*Contact)) error {
	return a.changeContacts(ctx, func(contacts Contacts) Contacts { return contacts.changed(id, change) })
}

func (c Contacts) changed(id string, change func(*Contact)) Contacts {
	c = c.met(Contact{ID: id, Kind: kindOf(id)})
	if known := c.ByID(id); known != nil {
		change(known)
	}
	return c
}

// wellFormed returns the contacts whose ids are of the contract's form. A server that lies may send anything as an id.
func (c Contacts) wellFormed() Contacts {
	c = slices.DeleteFunc(c, func(one Contact) bool { return !isID(one.ID) })
	for i := range c {
		if !isID(c[i].Chat) {
			c[i].Chat = ""
		}
	}
	return c
}

// changeContacts changes the contacts. Ids of another form are not kept, nor is the agent itself.
func (a *Agent) changeContacts(ctx context.Context, change func(Contacts) Contacts) error {
	own, err := a.Own(ctx)
	if err != nil {
		return err
	}
	return a.ledger.transact(ctx, func(tx *sql.Tx) error {
		contacts, err := loadSetting[Contacts](ctx, tx, contactsSetting, nil)
		if err != nil {
			return err
		}
		before := slices.Clone(contacts)
		contacts = slices.DeleteFunc(change(contacts).wellFormed(), func(c Contact) bool { return own != nil && c.ID == own.AgentID })
		slices.SortFunc(contacts, func(a, b Contact) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
		if slices.Equal(before, contacts) {
			return nil
		}
		return saveSetting(ctx, tx, contactsSetting, contacts)
	})
}
