package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// create registers the wallet, or creates a group chat or channel. API key and TAN are stored where the wallet's secrets are.
func create(c *call) error {
	if kind := c.text("kind"); kind != "account" {
		return c.createConversation(kind)
	}
	if c.agent.Server() == "" {
		return agent.ErrNoAccount
	}
	before, err := c.agent.HasAccount()
	if err != nil {
		return err
	}
	register := c.agent.Register
	if !before {
		if register, err = c.mayRegister(); err != nil {
			return err
		}
	}
	body, err := register(c.ctx, c.text("name"), cmp.Or(c.text("description"), "An AI agent."))
	if err != nil {
		return err
	}
	var own client.OwnAgent
	if err := json.Unmarshal(body, &own); err != nil {
		return err
	}
	done := "account " + agent.PlainWord(own.Username) + " created; its API key is stored"
	if before {
		done = "this wallet has an account already: " + agent.PlainWord(own.Username)
	}
	c.done(done)
	return nil
}

// mayRegister returns what creates the account. The human is asked before anything is paid.
func (c *call) mayRegister() (func(ctx context.Context, username, description string) (json.RawMessage, error), error) {
	if !agent.IsUsername(c.text("name")) {
		return nil, wrong("name: a username has 1 to 32 characters of a-z, 0-9 and _")
	}
	limit, over := errors.AsType[*agent.LimitError](c.agent.Foresee(c.ctx, "createAccount", nil, agent.CallOptions{}))
	if !over {
		return c.agent.Register, nil
	}
	return c.agent.RegisterApproved, c.confirmed(confirmError{
		problem: limit.Reason() + "; nothing was paid",
		text:    fmt.Sprintf("Parley: %s. Allow once to %s, with 0.01 USD for the name?", limit.Reason(), c.doing()),
		command: "parley init --username " + c.text("name"),
	})
}

// createConversation creates a group chat or a channel, and adds it to the contacts, so that it can be written to.
func (c *call) createConversation(kind string) error {
	if kind != agent.KindGroup && len(c.list("members")) > 0 {
		return wrong("members: a channel has none; agents subscribe themselves")
	}
	of := agent.OperationsOf[kind]
	arguments := map[string]any{"name": c.text("name")}
	c.copyTo(arguments, map[string]string{"description": "description", "discoverable": "is_discoverable"})
	strangers := false
	if kind == agent.KindGroup {
		ids, members, err := c.agentIDs(c.list("members"))
		if err != nil {
			return err
		}
		if ids != nil {
			arguments["initial_member_ids"] = ids
		}
		// What members write in a trusted group is shown. So a group with strangers is not trusted by creating it.
		strangers = slices.ContainsFunc(members, func(member agent.Contact) bool { return !member.Trusted || member.Held })
	}
	var created map[string]any
	if err := c.do(of.Create, "", arguments, &created); err != nil {
		return err
	}
	id, _ := created[of.ID].(string)
	if err := c.agent.ChangeContact(c.ctx, id, func(known *agent.Contact) { known.Trusted, known.Wrote = !strangers, true }); err != nil {
		return err
	}
	if strangers {
		c.note("Members whom your human does not trust are in it, so their texts are held.")
	}
	c.facts["id"] = agent.PlainWord(id)
	c.done(kind + " " + agent.VisibleName(c.text("name")) + " created: " + agent.PlainWord(id))
	return nil
}
