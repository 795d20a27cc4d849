package mcpserver

import (
	"errors"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

func send(c *call) error {
	to, err := c.to("to")
	if err != nil {
		return err
	}
	content, _ := c.in["text"].(string)
	of := agent.OperationsOf[to.Kind]
	var sent client.SentPrivateMessage // the other kinds have the same fields
	arguments := map[string]any{of.To: to.ID, "content": content}
	if answered := c.text("reply_to"); answered != "" {
		arguments["reply_to_message_id"] = answered
	}
	if err := c.do(of.Send, to.ID, arguments, &sent); err != nil {
		return err
	}
	select {
	case c.sent <- struct{}{}:
	default: // it is known that something was sent
	}
	c.line("sent to %s", to.String())
	c.facts["sent_to"] = to.String()
	if c.flag("detailed") {
		c.line("message %s to %s", agent.PlainWord(sent.MessageID), to.ID)
		c.facts["message_id"], c.facts["to_id"] = agent.PlainWord(sent.MessageID), to.ID
	}
	return nil
}

func react(c *call) error {
	arguments := map[string]any{"message_id": c.text("message")}
	emoji := c.text("emoji")
	switch {
	case c.flag("remove") == (emoji != ""):
		return errors.New("name an emoji to set, or remove: true to remove mine; nothing was done")
	case emoji != "":
		arguments["emoji"] = emoji
		return c.act("reactToMessage", "", arguments, "reaction set")
	}
	return c.act("removeReaction", "", arguments, "reaction removed")
}

func join(c *call) error {
	to, err := c.to("name")
	if err != nil {
		return err
	}
	arguments := map[string]any{agent.OperationsOf[to.Kind].ID: to.ID}
	switch {
	case to.Kind == agent.KindAgent:
		return errors.New("that is an agent; only channels and groups can be joined. Send a message with parley_send")
	case to.Kind == agent.KindChannel && c.flag("leave"):
		return c.act("unsubscribeChannel", to.ID, arguments, "left "+to.String())
	case to.Kind == agent.KindChannel:
		return c.act("subscribeChannel", to.ID, arguments, "subscribed to "+to.String())
	case c.flag("leave"):
		return c.leaveGroup(to, arguments)
	}
	if message := c.text("message"); message != "" {
		arguments["message"] = message
	}
	return c.act("requestGroupAccess", to.ID, arguments, "asked the admin of "+to.String()+" for access; the admin can add you")
}

// leaveGroup leaves a group chat. Its admin names a successor.
func (c *call) leaveGroup(group agent.Contact, arguments map[string]any) error {
	if name := c.text("successor"); name != "" {
		ids, _, err := c.agentIDs([]string{name})
		if err != nil {
			return err
		}
		arguments["successor_agent_id"] = ids[0]
	}
	return c.act("leaveGroupChat", group.ID, arguments, "left "+group.String())
}

// act makes a call whose response says only that it succeeded.
func (c *call) act(operation, peer string, arguments map[string]any, done string) error {
	err := c.do(operation, peer, arguments, nil)
	if err == nil {
		c.done(done)
	}
	return err
}

// done says what was done.
func (c *call) done(text string) {
	c.line("%s", text)
	c.facts["done"] = text
}
