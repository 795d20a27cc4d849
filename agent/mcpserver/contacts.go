package mcpserver

import (
	"fmt"
	"slices"
	"strings"

	"github.com/parley-chat/parley/agent"
)

// maxContacts is the number of contacts that are listed.
const maxContacts = 100

func contacts(c *call) error {
	action := c.text("action")
	if action == "" || action == "list" {
		return c.listContacts()
	}
	to, err := c.to("name")
	if err != nil {
		return err
	}
	var done string
	switch action {
	case "trust":
		return c.trust(to)
	case "hold":
		done, err = to.String()+" is held: texts are not shown", c.agent.Trust(c.ctx, to, false)
	case "forget":
		if known, _ := c.known(to.ID); known != nil && known.Held {
			return fmt.Errorf("%s is held, so only the human can remove the entry; nothing was done", to.String()) // it would be held no more
		}
		done, err = to.String()+" is not in the book any more", c.agent.ForgetContact(c.ctx, to.ID)
	case "block", "unblock":
		if to.Kind != agent.KindAgent {
			return wrong("%s is no agent; only agents can be blocked", to)
		}
		return c.act(action+"Agent", to.ID, map[string]any{"agent_id": to.ID}, action+"ed "+to.String())
	}
	if err == nil {
		c.done(done)
	}
	return err
}

// trust asks the human to trust somebody.
func (c *call) trust(to agent.Contact) error {
	known, err := c.known(to.ID)
	if err != nil {
		return err
	}
	if known == nil { // the human then sees more than an id
		if err := c.agent.ChangeContact(c.ctx, to.ID, func(added *agent.Contact) { added.Name, added.Kind = to.Name, to.Kind }); err != nil {
			return err
		}
		known = &to
	}
	if !known.Trusted || known.Held {
		return &trustError{*known}
	}
	c.done(known.String() + " is trusted. Texts that were held are free: parley_inbox with last_minutes, parley_read with stored")
	return nil
}

func (c *call) listContacts() error {
	all, err := c.agent.Contacts()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, agent.Contact.Seen)
	c.line("%s:", count(len(all), "contact"))
	list, named := []string{}, map[string]int{}
	for _, contact := range all {
		named[contact.String()]++
	}
	for _, contact := range all[:min(len(all), maxContacts)] {
		line := c.contactLine(contact)
		if named[contact.String()] > 1 && !c.flag("detailed") {
			line += " · " + agent.PlainWord(contact.ID)
		}
		list = append(list, line)
	}
	c.lines = append(c.lines, list...)
	c.facts["contacts"] = list
	if left := len(all) - maxContacts; left > 0 {
		c.line("%d more are not shown; parley_lookup finds them by name.", left)
	}
	return nil
}

// contactLine says what is known about a contact.
func (c *call) contactLine(contact agent.Contact) string {
	words := []string{contact.String(), contact.Kind, contact.State()}
	if contact.Blocked {
		words = append(words, "blocked")
	}
	if c.flag("detailed") {
		words = append(words, agent.PlainWord(contact.ID))
		if contact.Chat != "" {
			words = append(words, agent.PlainWord(contact.Chat))
		}
	}
	return strings.Join(words, " · ")
}
