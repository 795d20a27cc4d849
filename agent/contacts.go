package agent

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Contact is an agent, a group chat or a channel that the wallet's owner has dealt with.
type Contact struct {
	// Name is a username, or the name of a group chat or channel. Names of these are not unique, and others choose them.
	Name string `json:"name"`
	ID   string `json:"id"`
	Kind string `json:"kind"`
	// Chat is the id of the private chat with an agent, if it is known.
	Chat string `json:"chat,omitempty"`
	// Trusted contacts may be written to, and their text is shown to models.
	Trusted bool `json:"trusted,omitempty"`
	// Held is true if the owner wants the text of a contact held back also in trusted conversations, and nothing written to it.
	Held bool `json:"held,omitempty"`
	// Wrote is true if something came from the contact. Then it may be answered.
	Wrote bool `json:"wrote,omitempty"`
	// Named is true if the owner looked a channel up by its name, subscribed to it, or created the conversation. Then the name means it, and
	// nobody else changes the name.
	Named bool `json:"named,omitempty"`
	// Own is true if the owner gave the conversation its name.
	Own bool `json:"own,omitempty"`
	// Ended is true if the owner left the conversation, or it was deleted.
	Ended bool `json:"ended,omitempty"`
	// Blocked is true if the owner has blocked the agent.
	Blocked bool      `json:"blocked,omitempty"`
	Since   time.Time `json:"since"`
}

// Seen reports whether nothing is known of the contact but its name: it was in a listing, or was looked up.
func (c Contact) Seen() bool { return !c.Known() && !c.Held && !c.Named && !c.Blocked && c.Chat == "" }

// Known reports whether the contact may be written to: it is trusted, or it wrote first, and it is not held.
func (c Contact) Known() bool { return !c.Held && (c.Trusted || c.Wrote) }

// String returns the name as it is written to address the contact. It returns the id if there is no name, if a stranger chose the name
// (of a group chat or channel that is neither trusted nor the owner's), and if the name could be more than a name where it is shown or
// run.
func (c Contact) String() string { return c.address(VisibleName(c.Name)) }

// Plain is String without quotes, for fields that programs read.
func (c Contact) Plain() string { return c.address(c.Name) }

func (c Contact) address(name string) string {
	good := c.Kind != KindAgent && (c.Trusted || c.Own) || c.Kind == KindAgent && IsUsername(c.Name)
	switch {
	case c.Name == "" || !Tame(c.Name) || !good:
		return PlainWord(c.ID)
	case c.Kind == KindChannel:
		return "#" + name
	}
	return name
}

// State says whether the owner trusts the contact: "held", "trusted", "wrote first" or "stranger"; or "ended".
func (c Contact) State() string {
	switch {
	case c.Ended:
		return "ended"
	case c.Held:
		return "held"
	case c.Trusted:
		return "trusted"
	case c.Wrote:
		return "wrote first"
	}
	return "stranger"
}

// TrustCommand returns the command with which a person trusts the contact. It is "" if the id is not of the contract's form: people paste
// the command into a shell.
func (c Contact) TrustCommand() string {
	if !isID(c.ID) {
		return ""
	}
	return "parley contacts trust " + c.ID
}

// Contacts are all contacts of a wallet.
type Contacts []Contact

// AmbiguousError means that several contacts or channels have a name.
type AmbiguousError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("%s is the name of several; use an id: %s", VisibleName(e.Name), strings.Join(e.IDs, ", "))
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

// Find returns the contact with a name or an id, or nil. #name is a channel. A group chat or channel that is neither trusted nor named by
// the owner has no name here: strangers choose these names. The error is an [*AmbiguousError].
func (c Contacts) Find(to string) (*Contact, error) {
	if isID(to) {
		return c.ByID(to), nil
	}
	name, channel := strings.CutPrefix(to, "#")
	kinds := []string{KindAgent, KindGroup}
	if channel {
		kinds = []string{KindChannel}
	}
	for _, kind := range kinds {
		var found *Contact
		var ids []string
		for i, one := range c {
			if one.Kind == kind && one.Name == name && (kind == KindAgent || one.Trusted || one.Named) {
				found, ids = &c[i], append(ids, one.ID)
			}
		}
		if len(ids) > 1 {
			return nil, &AmbiguousError{to, ids}
		}
		if found != nil {
			return found, nil
		}
	}
	return nil, nil //nolint:nilnil // none
}

// Address returns what a name means to a caller that can use only these kinds: a channel may be named without its #, unless a contact of
// another kind has the name.
func (c Contacts) Address(to string, kinds ...string) string {
	if !slices.Equal(kinds, []string{KindChannel}) || isID(to) || strings.HasPrefix(to, "#") {
		return to
	}
	channel, err := c.Find("#" + to)
	if other, _ := c.Find(to); channel == nil && err == nil && other != nil {
		return to
	}
	return "#" + to
}

// notTrusted returns a [*GroupNotTrustedError] if a name is that of a group chat that is not trusted, or nil.
func (c Contacts) notTrusted(name string) error {
	i := slices.IndexFunc(c, func(one Contact) bool { return one.Kind == KindGroup && one.Name == name && !one.Trusted && !one.Ended })
	if i < 0 {
		return nil
	}
	return &GroupNotTrustedError{c[i]}
}

// Shows reports whether the text of a sender may be shown to a model: the owner trusts the sender, or the conversation.
func (c Contacts) Shows(sender, conversation string) bool {
	from, in := c.ByID(sender), c.ByID(conversation)
	if from != nil && (from.Held || from.Trusted) {
		return !from.Held
	}
	return in != nil && in.Kind != KindAgent && in.Trusted && !in.Held
}

// now is the time of a new contact.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// Contacts returns the contacts, by name.
func (a *Agent) Contacts() (Contacts, error) {
	return loadSetting[Contacts](context.Background(), a.ledger.db, contactsSetting, nil)
}

// ChangeContact changes the contact with an id, or adds it. An id that is not of the contract's form is not added.
func (a *Agent) ChangeContact(ctx context.Context, id string, change func(*Contact)) error {
	return a.changeContacts(ctx, func(contacts Contacts) Contacts {
		found := contacts.ByID(id)
		if found == nil {
			contacts = append(contacts, Contact{ID: id, Since: now()})
			found = &contacts[len(contacts)-1]
		}
		change(found)
		return contacts
	})
}

// Trust notes whether the owner trusts a contact, or wants its text held.
func (a *Agent) Trust(ctx context.Context, of Contact, trusted bool) error {
	return a.ChangeContact(ctx, of.ID, func(known *Contact) { known.Kind, known.Trusted, known.Held = of.Kind, trusted, !trusted })
}

// ForgetContact removes a contact. One that is blocked stays so, as at the server.
func (a *Agent) ForgetContact(ctx context.Context, id string) error {
	return a.changeContacts(ctx, func(contacts Contacts) Contacts {
		if known := contacts.ByID(id); known != nil && known.Blocked {
			known.Trusted, known.Held, known.Wrote = false, false, false
		}
		return slices.DeleteFunc(contacts, func(c Contact) bool { return c.ID == id && !c.Blocked })
	})
}

// wellFormed returns the contacts whose ids are of the contract's form. A server that lies may send anything as an id, and commands for
// people contain ids.
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
