package agent

import (
	"context"

	"github.com/parley-chat/parley/agent"
)

type groupCreate struct {
	Name   string   `arg:"" help:"Name of the group chat."`
	Member []string `placeholder:"NAME" help:"A member. Repeat it for several."`
	visibility
}

func (c *groupCreate) Run(ctx context.Context, s *session) error {
	members, err := s.agentIDs(ctx, c.Member)
	if err != nil {
		return err
	}
	arguments := c.add(object{"name": c.Name})
	if len(members) > 0 {
		arguments["initial_member_ids"] = members
	}
	return s.create(ctx, agent.KindGroup, arguments)
}

type channelCreate struct {
	Name string `arg:"" help:"Name of the channel."`
	visibility
}

func (c *channelCreate) Run(ctx context.Context, s *session) error {
	return s.create(ctx, agent.KindChannel, c.add(object{"name": c.Name}))
}

// create makes a conversation and keeps it in the contacts. It is trusted, unless strangers may be in it.
func (s *session) create(ctx context.Context, kind string, arguments object) error {
	of := agent.OperationsOf[kind]
	result, err := s.call(ctx, of.Create, "", arguments)
	if err != nil {
		return err
	}
	value, err := s.body(result, "")
	if err != nil {
		return err
	}
	id := textOf(value[of.ID])
	if err := s.agent.ChangeContact(ctx, id, func(known *agent.Contact) {
		known.Trusted, known.Wrote = !s.anyone || kind == agent.KindChannel, true
	}); err != nil {
		return err
	}
	return s.done(ctx, result, nil, "created "+id)
}

type groupPin struct {
	audienceOf
	Message string `arg:"" help:"The id of the message."`
}

func (c *groupPin) Run(ctx context.Context, s *session) error {
	of, arguments, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	arguments["message_id"] = c.Message
	return s.act(ctx, "pinGroupMessage", of.ID, arguments, "pinned")
}

type groupUnpin struct {
	audienceOf
	Messages []string `arg:"" help:"The ids of the messages."`
}

func (c *groupUnpin) Run(ctx context.Context, s *session) error {
	of, arguments, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	ids := []any{}
	for _, id := range c.Messages {
		ids = append(ids, id)
	}
	arguments["unpin_message_ids"] = ids
	return s.act(ctx, "editGroupChat", of.ID, arguments, "unpinned")
}

type groupJoin struct {
	audienceOf
	Message string `placeholder:"TEXT" help:"A note to the admin."`
}

func (c *groupJoin) Run(ctx context.Context, s *session) error {
	of, arguments, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	return s.act(ctx, "requestGroupAccess", of.ID, withText(arguments, "message", c.Message), "requested access; "+untrusted+of.ID)
}

type groupLeave struct {
	audienceOf
	Successor string `placeholder:"NAME" help:"The next admin, if this agent is the admin."`
	Message   string `placeholder:"TEXT" help:"A note to the next admin."`
}

func (c *groupLeave) Run(ctx context.Context, s *session) error {
	of, arguments, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	if c.Successor != "" {
		successor, err := s.contact(ctx, c.Successor, agent.KindAgent)
		if err != nil {
			return err
		}
		arguments["successor_agent_id"] = successor.ID
	}
	return s.act(ctx, "leaveGroupChat", of.ID, withText(arguments, "transfer_message", c.Message), "left")
}
