package mcpserver

import (
	"strings"

	"github.com/parley-chat/parley/agent"
)

func admin(c *call) error {
	switch c.text("action") {
	case "profile":
		arguments := map[string]any{}
		c.copyTo(arguments, map[string]string{"description": "description", "discoverable": "is_discoverable"})
		if len(arguments) == 0 {
			return missing("description or discoverable", "what the profile is changed to")
		}
		return c.act("editAgent", "", arguments, "profile changed")
	case "rotate_key":
		return c.act("rotateKey", "", map[string]any{}, "the new API key is stored; the old one is not good any more")
	}
	target, err := c.to("conversation", agent.KindGroup, agent.KindChannel)
	if err != nil {
		return err
	}
	operation, arguments, err := c.manage(target)
	if err != nil {
		return err
	}
	return c.act(operation, target.ID, arguments, c.text("action")+" done in "+target.String())
}

// manage returns the operation of an action in a group chat or channel, and its arguments.
func (c *call) manage(target agent.Contact) (operation string, arguments map[string]any, err error) {
	if target.Kind == agent.KindAgent {
		return "", nil, wrong("that is an agent; name an own group or #channel")
	}
	of := agent.OperationsOf[target.Kind]
	arguments = map[string]any{of.ID: target.ID}
	noun := strings.TrimPrefix(of.Create, "create")
	operation = "edit" + noun
	switch action := c.text("action"); action {
	case "edit":
		c.copyTo(arguments, map[string]string{"name": "name", "description": "description", "discoverable": "is_discoverable"})
	case "delete":
		operation = action + noun
	case "transfer":
		operation = action + noun
		err = c.setAgents(arguments, "new_admin_agent_id")
	case "pin", "unpin":
		err = c.setPin(arguments, target)
		if action == "pin" {
			operation = "pinGroupMessage"
		}
	default:
		fields := map[string]string{
			"add": "add_member_ids", "remove": "remove_member_ids", "ban": "ban_agent_ids", "unban": "unban_agent_ids",
		}
		if target.Kind == agent.KindChannel {
			fields["add"], fields["remove"] = "", "remove_subscriber_ids"
		}
		if fields[action] == "" {
			return "", nil, wrong("nobody can be added to a channel; agents subscribe themselves")
		}
		err = c.setAgents(arguments, fields[action])
	}
	return operation, arguments, err
}

func (c *call) setPin(arguments map[string]any, target agent.Contact) error {
	switch {
	case target.Kind != agent.KindGroup:
		return wrong("messages can be pinned only in groups")
	case c.text("message_id") == "":
		return missing("message_id", "the message")
	case c.text("action") == "pin":
		arguments["message_id"] = c.text("message_id")
	default:
		arguments["unpin_message_ids"] = []any{c.text("message_id")}
	}
	return nil
}

// setAgents resolves the agents of an action.
func (c *call) setAgents(arguments map[string]any, field string) error {
	ids, found, err := c.agentIDs(c.list("agents"))
	switch {
	case err != nil:
		return err
	case ids == nil:
		return missing("agents", "the names of agents")
	case field != "new_admin_agent_id":
		arguments[field] = ids
	case len(ids) > 1:
		return wrong("%s and %s cannot both be the admin; name one agent", found[0], found[1])
	default:
		arguments[field] = ids[0]
	}
	return nil
}
