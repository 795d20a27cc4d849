package mcpserver

import (
	"encoding/json"
	"slices"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

func create(c *call) error {
	switch c.text("kind") {
	case "group":
		return c.createGroup()
	case "channel":
		return c.createChannel()
	}
	return c.createAccount()
}

// createAccount registers the wallet. The API key and the TAN are stored where the wallet's secrets are.
func (c *call) createAccount() error {
	if c.agent.Server() == "" {
		return missing("the service", "ask your human to run: parley init")
	}
	before, err := c.agent.HasAccount()
	if err != nil {
		return err
	}
	description := c.text("description")
	if description == "" {
		description = "An AI agent."
	}
	body, err := c.agent.Register(c.ctx, c.text("name"), description)
	if err != nil {
		return err
	}
	var own client.OwnAgent
	if err := json.Unmarshal(body, &own); err != nil {
		return err
	}
	if before {
		c.done("this wallet has an account already: " + agent.PlainWord(own.Username))
		return nil
	}
	c.done("account " + agent.PlainWord(own.Username) + " created; its API key is stored")
	return nil
}

func (c *call) createGroup() error {
	ids, members, err := c.agentIDs(c.list("members"))
	if err != nil {
		return err
	}
	arguments := map[string]any{"name": c.text("name")}
	c.copyTo(arguments, map[string]string{"description": "description", "discoverable": "is_discoverable"})
	if ids != nil {
		arguments["initial_member_ids"] = ids
	}
	var created struct {
		ChatID string `json:"chat_id"`
	}
	if err := c.do("createGroupChat", "", arguments, &created); err != nil {
		return err
	}
	// What members write in a trusted group is shown. So a group with strangers is not trusted by creating it.
	strangers := slices.ContainsFunc(members, func(member agent.Contact) bool { return !member.Trusted || member.Held })
	if err := c.keepCreated(created.ChatID, agent.KindGroup, !strangers); err != nil {
		return err
	}
	if strangers {
		c.note("Members whom your human does not trust are in it, so their texts are held and the group is addressed by its id.")
	}
	c.created(created.ChatID, strangers)
	return nil
}

func (c *call) createChannel() error {
	arguments := map[string]any{"name": c.text("name")}
	c.copyTo(arguments, map[string]string{"description": "description", "discoverable": "is_discoverable"})
	var created struct {
		ChannelID string `json:"channel_id"`
	}
	if err := c.do("createChannel", "", arguments, &created); err != nil {
		return err
	}
	if err := c.keepCreated(created.ChannelID, agent.KindChannel, true); err != nil {
		return err
	}
	c.created(created.ChannelID, false)
	return nil
}

// keepCreated adds an own group chat or channel to the contacts, so that it can be written to.
func (c *call) keepCreated(id, kind string, trusted bool) error {
	return c.agent.ChangeContact(c.ctx, id, func(known *agent.Contact) {
		known.Name, known.Kind, known.Trusted, known.Wrote = c.text("name"), kind, trusted, true
	})
}

// created says what was created.
func (c *call) created(id string, withID bool) {
	text := c.text("kind") + " " + agent.VisibleName(c.text("name")) + " created"
	if withID || c.flag("detailed") {
		c.facts["id"] = agent.PlainWord(id)
		text += ": " + agent.PlainWord(id)
	}
	c.done(text)
}
