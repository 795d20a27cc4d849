package agent

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type contactsCommand struct {
	Flags   agentFlags    `embed:""`
	Pay     payFlags      `embed:""`
	List    contactsList  `cmd:"" aliases:"ls" default:"1" help:"List the contacts. Free."`
	Add     contactTrust  `cmd:"" help:"Add an agent, a group chat or a channel, and trust it (up to 0.005 USD to look it up)."`
	Trust   contactTrust  `cmd:"" help:"Show the text of a contact to programs too, and let them write to it (up to 0.005 USD to look it up)."`
	Hold    contactTrust  `cmd:"" help:"Hold back the text of a contact from programs, and let them not write to it."`
	Forget  contactForget `cmd:"" aliases:"rm" help:"Remove a contact."`
	Block   contactBlock  `cmd:"" help:"Stop an agent from sending you messages (0.002 USD)."`
	Unblock contactBlock  `cmd:"" help:"End a block (0.002 USD)."`
}

// contactsList lists all contacts, or as a command of group and channel those of this kind.
type contactsList struct{}

func (c *contactsList) Run(ctx context.Context, s *session) error {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	shown := []object{}
	for _, contact := range contacts {
		if of, _, _ := strings.Cut(s.command, " "); of != "contacts" && of != contact.Kind {
			continue
		}
		name := contact.Plain()
		if contact.Name != "" && !s.wantsJSON() {
			name = agent.VisibleName(contact.Name) // a person sees what a stranger chose
		}
		shown = append(shown, object{
			"name": name, "id": contact.ID, "kind": contact.Kind, "state": contact.State(), "chat_id": contact.Chat,
			"blocked": contact.Blocked, "since": contact.Since,
		})
	}
	return s.print(ctx, object{"contacts": shown, "note": dataNote}, func(w io.Writer) {
		table := console.Table(w)
		for _, one := range shown {
			state := fmt.Sprint(one["state"])
			if one["blocked"] == true {
				state += ", blocked"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", one["name"], one["kind"], state, one["id"])
		}
		_ = table.Flush() // into memory
		if len(shown) == 0 {
			fmt.Fprintln(w, s.runnable("none; add one with: parley contacts add NAME"))
		}
	})
}

// contactOf is the argument that names a contact.
type contactOf struct {
	Name string `arg:"" help:"A username, #channel, the name of a group chat, or an id."`
}

// contactTrust changes whether a contact is trusted. It is looked up if it is not known.
type contactTrust struct{ contactOf }

func (c *contactTrust) Run(ctx context.Context, s *session) error {
	line := map[string]string{"contacts add": "added", "contacts trust": "trusted", "contacts hold": "held"}[s.command]
	of, err := s.contact(ctx, c.Name)
	if err == nil && s.pay.DryRun {
		return errDryRun
	}
	if err == nil {
		err = s.agent.Trust(ctx, of, s.command != "contacts hold")
	}
	if err != nil {
		return err
	}
	return s.changed(ctx, of, line)
}

// changed prints what was done to a contact.
func (s *session) changed(ctx context.Context, of agent.Contact, line string) error {
	return s.print(ctx, object{"contact": of.Plain(), "id": of.ID, "done": line}, func(w io.Writer) { fmt.Fprintln(w, line, of) })
}

type contactForget struct{ contactOf }

func (c *contactForget) Run(ctx context.Context, s *session) error {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	found, err := contacts.Find(c.Name)
	if err != nil || found == nil {
		return console.Usagef("%s is not in the contacts, or not a unique name; parley contacts lists the ids", agent.VisibleName(c.Name))
	}
	if s.pay.DryRun {
		return errDryRun
	}
	if err := s.agent.ForgetContact(ctx, found.ID); err != nil {
		return err
	}
	return s.changed(ctx, *found, "forgot")
}

// contactBlock blocks an agent, or ends that.
type contactBlock struct{ contactOf }

func (c *contactBlock) Run(ctx context.Context, s *session) error {
	of, err := s.contact(ctx, c.Name, agent.KindAgent)
	if err != nil {
		return err
	}
	action := strings.TrimPrefix(s.command, "contacts ")
	return s.act(ctx, action+"Agent", of.ID, object{"agent_id": of.ID}, action+"ed "+of.String())
}
