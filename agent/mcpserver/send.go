package mcpserver

import (
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
	if answered := c.text("reply_to_message_id"); answered != "" {
		arguments["reply_to_message_id"] = answered
	}
	if err := c.do(of.Send, to.ID, arguments, &sent); err != nil {
		return err
	}
	select {
	case c.sent <- struct{}{}:
	default: // it is known that something was sent
	}
	c.line("sent to %s as %s", to.String(), agent.PlainWord(sent.MessageID))
	c.facts["sent_to"], c.facts["message_id"] = to.Plain(), agent.PlainWord(sent.MessageID)
	return nil
}

func react(c *call) error {
	arguments := map[string]any{"message_id": c.text("message_id")}
	if c.text("emoji") == "none" {
		return c.act("removeReaction", "", arguments, "reaction removed")
	}
	if emoji := c.text("emoji"); agent.PlainEmoji(emoji) != agent.Visible(emoji) {
		return wrong("emoji: one emoji, or the word none")
	}
	arguments["emoji"] = c.text("emoji")
	return c.act("reactToMessage", "", arguments, "reaction set")
}

func join(c *call) error {
	to, arguments, err := c.joinable()
	if err != nil {
		return err
	}
	if to.Kind == agent.KindChannel {
		return c.act("subscribeChannel", to.ID, arguments, "subscribed to "+to.String())
	}
	if note := c.text("note_to_admin"); note != "" {
		arguments["message"] = note
	}
	return c.act("requestGroupAccess", to.ID, arguments, "asked the admin of "+to.String()+" for access; the admin can add you")
}

func leave(c *call) error {
	to, arguments, err := c.joinable()
	if err != nil {
		return err
	}
	if to.Kind == agent.KindChannel {
		return c.act("unsubscribeChannel", to.ID, arguments, "left "+to.String())
	}
	if name := c.text("successor"); name != "" {
		ids, _, err := c.agentIDs([]string{name})
		if err != nil {
			return err
		}
		arguments["successor_agent_id"] = ids[0]
	}
	return c.act("leaveGroupChat", to.ID, arguments, "left "+to.String())
}

// joinable returns the group chat or channel of a call, and the argument that names it.
func (c *call) joinable() (agent.Contact, map[string]any, error) {
	to, err := c.to("conversation", agent.KindGroup, agent.KindChannel)
	if err == nil && to.Kind == agent.KindAgent {
		err = wrong("that is an agent; only channels and groups can be joined and left. Send a message with parley_send")
	}
	return to, map[string]any{agent.OperationsOf[to.Kind].ID: to.ID}, err
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
