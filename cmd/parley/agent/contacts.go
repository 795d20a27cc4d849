package agent

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// contactsCommand is about the contacts of the wallet.
type contactsCommand struct {
	Flags   agentFlags      `embed:""`
	List    contactsList    `cmd:"" default:"1" help:"List the contacts. Free."`
	Add     contactsAdd     `cmd:"" help:"Add an agent, a group chat or a channel, and trust it."`
	Trust   contactsTrust   `cmd:"" help:"Show the text of a contact also to programs, and let this agent write to it."`
	Hold    contactsHold    `cmd:"" help:"Hold back the text of a contact from programs."`
	Forget  contactsForget  `cmd:"" help:"Remove a contact."`
	Block   contactsBlock   `cmd:"" help:"Stop an agent from sending you messages."`
	Unblock contactsUnblock `cmd:"" help:"End a block."`
}

type contactsList struct{}

func (c *contactsList) Run(ctx context.Context, s *session) error {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	shown := []object{}
	for _, contact := range contacts {
		name := contact.String()
		if contact.Name != "" && !s.wantsJSON() {
			name = agent.VisibleName(contact.Name) // a person sees what a stranger chose
		}
		shown = append(shown, object{
			"name": name, "id": contact.ID, "kind": contact.Kind, "state": contact.State(), "chat_id": contact.Chat,
			"since": contact.Since,
		})
	}
	return s.print(ctx, object{"contacts": shown, "note": dataNote}, func(w io.Writer) {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, one := range shown {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", one["name"], one["kind"], one["state"], one["id"])
		}
		_ = table.Flush() // into memory
		if len(shown) == 0 {
			fmt.Fprintln(w, "no contacts; add one with: parley contacts add NAME")
		}
	})
}

// contactOf is the argument that names a contact.
type contactOf struct {
	Name string `arg:"" help:"A username, #channel, the name of a group chat, or an id."`
}

type (
	contactsAdd     struct{ contactOf }
	contactsTrust   struct{ contactOf }
	contactsHold    struct{ contactOf }
	contactsForget  struct{ contactOf }
	contactsBlock   struct{ contactOf }
	contactsUnblock struct{ contactOf }
)

// trust changes whether a contact is trusted. It is looked up if it is not known.
func (c contactOf) trust(ctx context.Context, s *session, trusted bool, line string) error {
	of, err := s.contact(ctx, c.Name)
	if err == nil {
		err = s.agent.Trust(ctx, of, trusted)
	}
	if err != nil {
		return err
	}
	return s.changed(ctx, of, line)
}

// changed prints what was done to a contact.
func (s *session) changed(ctx context.Context, of agent.Contact, line string) error {
	return s.print(ctx, object{"contact": of.String(), "id": of.ID, "done": line}, func(w io.Writer) { fmt.Fprintln(w, line, of) })
}

func (c *contactsAdd) Run(ctx context.Context, s *session) error {
	return c.trust(ctx, s, true, "added")
}

func (c *contactsTrust) Run(ctx context.Context, s *session) error {
	return c.trust(ctx, s, true, "trusted")
}

func (c *contactsHold) Run(ctx context.Context, s *session) error {
	return c.trust(ctx, s, false, "held")
}

func (c *contactsForget) Run(ctx context.Context, s *session) error {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	found, err := contacts.Find(c.Name)
	if err != nil || found == nil {
		return console.Usagef("%s is not in the contacts, or not a unique name; parley contacts lists the ids", agent.VisibleName(c.Name))
	}
	if err := s.agent.ForgetContact(ctx, found.ID); err != nil {
		return err
	}
	return s.changed(ctx, *found, "forgot")
}

// about makes a call about an agent.
func (c contactOf) about(ctx context.Context, s *session, operation, line string) error {
	of, err := s.contact(ctx, c.Name, agent.KindAgent)
	if err != nil {
		return err
	}
	return s.act(ctx, operation, of.ID, object{"agent_id": of.ID}, line+" "+of.String())
}

func (c *contactsBlock) Run(ctx context.Context, s *session) error {
	return c.about(ctx, s, "blockAgent", "blocked")
}

func (c *contactsUnblock) Run(ctx context.Context, s *session) error {
	return c.about(ctx, s, "unblockAgent", "unblocked")
}
