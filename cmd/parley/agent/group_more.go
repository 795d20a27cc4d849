package agent

import (
	"context"

	"github.com/parley-chat/parley/agent"
)

// inGroup makes a call about a group chat.
func (s *session) inGroup(ctx context.Context, name, operation string, arguments object, line string) error {
	group, err := s.conversation(ctx, name, agent.KindGroup)
	if err != nil {
		return err
	}
	arguments["chat_id"] = group.ID
	return s.act(ctx, operation, group.ID, arguments, line)
}

type groupPin struct {
	groupOf
	Message string `arg:"" help:"The id of the message."`
}

func (c *groupPin) Run(ctx context.Context, s *session) error {
	return s.inGroup(ctx, c.Group, "pinGroupMessage", object{"message_id": c.Message}, "pinned")
}

type groupUnpin struct {
	groupOf
	Messages []string `arg:"" help:"The ids of the messages."`
}

func (c *groupUnpin) Run(ctx context.Context, s *session) error {
	ids := []any{}
	for _, id := range c.Messages {
		ids = append(ids, id)
	}
	return s.inGroup(ctx, c.Group, "editGroupChat", object{"unpin_message_ids": ids}, "unpinned")
}

type groupJoin struct {
	groupOf
	Message string `placeholder:"TEXT" help:"A note to the admin."`
}

func (c *groupJoin) Run(ctx context.Context, s *session) error {
	group, err := s.conversation(ctx, c.Group, agent.KindGroup)
	if err != nil {
		return err
	}
	arguments := object{"chat_id": group.ID}
	if c.Message != "" {
		arguments["message"] = c.Message
	}
	result, err := s.call(ctx, "requestGroupAccess", group.ID, arguments)
	return s.done(ctx, result, err, "requested access; texts of strangers in it are held until: parley contacts trust "+group.ID)
}

type groupLeave struct {
	groupOf
	Successor string `placeholder:"NAME" help:"The next admin, if this agent is the admin."`
	Message   string `placeholder:"TEXT" help:"A note to the next admin."`
}

func (c *groupLeave) Run(ctx context.Context, s *session) error {
	group, err := s.conversation(ctx, c.Group, agent.KindGroup)
	if err != nil {
		return err
	}
	arguments := object{"chat_id": group.ID}
	if c.Successor != "" {
		successor, err := s.contact(ctx, c.Successor, agent.KindAgent)
		if err != nil {
			return err
		}
		arguments["successor_agent_id"] = successor.ID
	}
	if c.Message != "" {
		arguments["transfer_message"] = c.Message
	}
	return s.act(ctx, "leaveGroupChat", group.ID, arguments, "left")
}

type groupTransfer struct {
	groupOf
	To      string `arg:"" help:"Username or id of the next admin."`
	Message string `placeholder:"TEXT" help:"A note to the next admin."`
}

func (c *groupTransfer) Run(ctx context.Context, s *session) error {
	group, err := s.conversation(ctx, c.Group, agent.KindGroup)
	if err != nil {
		return err
	}
	return s.transfer(ctx, "transferGroupChat", object{"chat_id": group.ID}, c.To, c.Message)
}

// transfer makes another agent the admin of a conversation.
func (s *session) transfer(ctx context.Context, operation string, arguments object, to, message string) error {
	admin, err := s.contact(ctx, to, agent.KindAgent)
	if err != nil {
		return err
	}
	arguments["new_admin_agent_id"] = admin.ID
	if message != "" {
		arguments["message"] = message
	}
	return s.act(ctx, operation, admin.ID, arguments, "the admin is now "+admin.String())
}

type groupDelete struct{ groupOf }

func (c *groupDelete) Run(ctx context.Context, s *session) error {
	return s.inGroup(ctx, c.Group, "deleteGroupChat", object{}, "deleted")
}

type groupInfo struct{ groupOf }

func (c *groupInfo) Run(ctx context.Context, s *session) error {
	group, err := s.conversation(ctx, c.Group, agent.KindGroup)
	if err != nil {
		return err
	}
	return s.info(ctx, group)
}
