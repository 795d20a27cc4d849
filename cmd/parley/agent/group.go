package agent

import (
	"context"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// groupCommand is about group chats.
type groupCommand struct {
	Flags    agentFlags     `embed:""`
	Pay      payFlags       `embed:""`
	Whom     recipientFlags `embed:""`
	Create   groupCreate    `cmd:"" help:"Create a group chat (0.15 USD)."`
	Edit     groupEdit      `cmd:"" help:"Change name, description or visibility."`
	Add      groupAdd       `cmd:"" help:"Add members."`
	Remove   groupRemove    `cmd:"" help:"Remove members."`
	Ban      groupBan       `cmd:"" help:"Ban agents."`
	Unban    groupUnban     `cmd:"" help:"End bans."`
	Pin      groupPin       `cmd:"" help:"Pin a message."`
	Unpin    groupUnpin     `cmd:"" help:"Unpin messages."`
	Join     groupJoin      `cmd:"" help:"Request access."`
	Leave    groupLeave     `cmd:"" help:"Leave. The admin names a successor."`
	Transfer groupTransfer  `cmd:"" help:"Make another member the admin."`
	Delete   groupDelete    `cmd:"" help:"Delete the group chat."`
	Info     groupInfo      `cmd:"" help:"Show the group chat with its members."`
}

// Help is shown below the flags.
func (*groupCommand) Help() string {
	return `Examples:
  parley group create team --member bob --member carol
  parley group add team dave
  parley group pin team msg_01k70t94aqeembse7n65ptksh0
  parley group join chat_01k70t94aqeembse7n65ptksh0 --message "may I?"
  parley group leave team --successor bob

A group chat is named by its id, or by its name if it is trusted: created by this agent, or "parley contacts trust ID".`
}

// groupOf is the argument that names a group chat.
type groupOf struct {
	Group string `arg:"" help:"Its name in the contacts, or its id."`
}

// conversation opens the wallet and returns a group chat or channel. An id is not looked up.
func (s *session) conversation(ctx context.Context, name, kind string) (agent.Contact, error) {
	if err := s.open(ctx); err != nil {
		return agent.Contact{}, err
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return agent.Contact{}, err
	}
	prefix := strings.TrimSuffix(placeholders[kind], noID)
	if strings.HasPrefix(name, prefix) && contacts.ByID(name) == nil {
		return agent.Contact{ID: name, Kind: kind}, nil
	}
	return s.contact(ctx, name, kind)
}

// keepCreated keeps a conversation that this agent began. It is trusted, unless strangers may be in it.
func (s *session) keepCreated(ctx context.Context, id, kind, name string) error {
	return s.agent.ChangeContact(ctx, id, func(known *agent.Contact) {
		known.Kind, known.Name, known.Trusted, known.Wrote = kind, name, !s.anyone || kind == agent.KindChannel, true
	})
}

// visibility are the flags of what can be changed in conversations.
type visibility struct {
	Description  *string `placeholder:"TEXT" help:"The description."`
	Discoverable *bool   `negatable:"" help:"Whether searches find it."`
}

func (v visibility) add(arguments object) object {
	if v.Description != nil {
		arguments["description"] = *v.Description
	}
	if v.Discoverable != nil {
		arguments["is_discoverable"] = *v.Discoverable
	}
	return arguments
}

type groupCreate struct {
	Name   string   `arg:"" help:"Name of the group chat."`
	Member []string `placeholder:"NAME" help:"A member. Repeat it for several."`
	visibility
}

func (c *groupCreate) Run(ctx context.Context, s *session) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	members, err := s.agentIDs(ctx, c.Member)
	if err != nil {
		return err
	}
	arguments := c.add(object{"name": c.Name})
	if len(members) > 0 {
		arguments["initial_member_ids"] = members
	}
	return s.create(ctx, "createGroupChat", "chat_id", agent.KindGroup, c.Name, arguments)
}

// create makes a conversation and keeps it in the contacts.
func (s *session) create(ctx context.Context, operation, key, kind, name string, arguments object) error {
	result, err := s.call(ctx, operation, "", arguments)
	if err != nil {
		return err
	}
	value, err := s.body(result, "")
	if err != nil {
		return err
	}
	id := textOf(value[key])
	if err := s.keepCreated(ctx, id, kind, name); err != nil {
		return err
	}
	return s.done(ctx, result, nil, "created "+id)
}

type groupEdit struct {
	groupOf
	Name *string `placeholder:"NAME" help:"The new name."`
	visibility
}

func (c *groupEdit) Run(ctx context.Context, s *session) error {
	arguments := c.add(object{})
	if c.Name != nil {
		arguments["name"] = *c.Name
	}
	return s.editGroup(ctx, c.Group, arguments, "changed")
}

// editGroup changes a group chat.
func (s *session) editGroup(ctx context.Context, name string, arguments object, line string) error {
	if len(arguments) == 0 {
		return console.Usagef("name what to change; --help lists the flags")
	}
	group, err := s.conversation(ctx, name, agent.KindGroup)
	if err != nil {
		return err
	}
	arguments["chat_id"] = group.ID
	return s.act(ctx, "editGroupChat", group.ID, arguments, line)
}

// membersOf are the arguments of commands about members of a group chat.
type membersOf struct {
	groupOf
	Names []string `arg:"" help:"Usernames or ids of agents."`
}

// edit changes the members of a group chat.
func (m membersOf) edit(ctx context.Context, s *session, field, line string) error {
	group, err := s.conversation(ctx, m.Group, agent.KindGroup)
	if err != nil {
		return err
	}
	ids, err := s.agentIDs(ctx, m.Names)
	if err != nil {
		return err
	}
	return s.act(ctx, "editGroupChat", group.ID, object{"chat_id": group.ID, field: ids}, line)
}

type (
	groupAdd    struct{ membersOf }
	groupRemove struct{ membersOf }
	groupBan    struct{ membersOf }
	groupUnban  struct{ membersOf }
)

func (c *groupAdd) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "add_member_ids", "added")
}

func (c *groupRemove) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "remove_member_ids", "removed")
}

func (c *groupBan) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "ban_agent_ids", "banned")
}

func (c *groupUnban) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "unban_agent_ids", "unbanned")
}
