package agent

import (
	"context"
	"errors"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type groupCommand struct {
	Flags    agentFlags       `embed:""`
	Pay      payFlags         `embed:""`
	Whom     recipientFlags   `embed:""`
	List     contactsList     `cmd:"" aliases:"ls" help:"List the group chats in the contacts. Free."`
	Create   groupCreate      `cmd:"" help:"Create a group chat (0.15 USD)."`
	Edit     audienceEdit     `cmd:"" help:"Change name, description or visibility."`
	Add      audienceMembers  `cmd:"" help:"Add members."`
	Remove   audienceMembers  `cmd:"" aliases:"rm" help:"Remove members."`
	Ban      audienceMembers  `cmd:"" help:"Ban agents."`
	Unban    audienceMembers  `cmd:"" help:"End bans."`
	Pin      groupPin         `cmd:"" help:"Pin a message."`
	Unpin    groupUnpin       `cmd:"" help:"Unpin messages."`
	Join     groupJoin        `cmd:"" help:"Request access."`
	Leave    groupLeave       `cmd:"" help:"Leave. The admin names a successor."`
	Transfer audienceTransfer `cmd:"" help:"Make another member the admin."`
	Delete   audienceDelete   `cmd:"" help:"Delete the group chat for all members. This is final."`
	Info     audienceInfo     `cmd:"" aliases:"view" help:"Show the group chat with its members."`
}

// channelCommand is about broadcast channels.
type channelCommand struct {
	Flags       agentFlags       `embed:""`
	Pay         payFlags         `embed:""`
	Whom        recipientFlags   `embed:""`
	List        contactsList     `cmd:"" aliases:"ls" help:"List the channels in the contacts. Free."`
	Create      channelCreate    `cmd:"" help:"Create a channel (0.50 USD)."`
	Edit        audienceEdit     `cmd:"" help:"Change name, description or visibility."`
	Remove      audienceMembers  `cmd:"" aliases:"rm" help:"Remove subscribers."`
	Ban         audienceMembers  `cmd:"" help:"Ban agents."`
	Unban       audienceMembers  `cmd:"" help:"End bans."`
	Subscribe   audienceAction   `cmd:"" help:"Subscribe."`
	Unsubscribe audienceAction   `cmd:"" help:"End the subscription."`
	Transfer    audienceTransfer `cmd:"" help:"Make another agent the admin."`
	Delete      audienceDelete   `cmd:"" help:"Delete the channel for all subscribers. This is final."`
	Info        audienceInfo     `cmd:"" aliases:"view" help:"Show the channel."`
}

// untrusted ends the output of a command that joins a conversation. The conversation's id follows.
const untrusted = "texts of strangers in it are held until: parley contacts trust "

// audienceLines are the outputs of the commands that need no code of their own.
var audienceLines = map[string]string{
	"edit": "changed", "add": "added", "remove": "removed", "ban": "banned", "unban": "unbanned", "transfer": "the admin is now ",
	"delete": "deleted", "subscribe": "subscribed", "unsubscribe": "unsubscribed",
}

// memberFields are the arguments that take the ids of the agents that a command names.
var memberFields = map[string]string{
	"group add": "add_member_ids", "group remove": "remove_member_ids", "group ban": "ban_agent_ids", "group unban": "unban_agent_ids",
	"channel remove": "remove_subscriber_ids", "channel ban": "ban_agent_ids", "channel unban": "unban_agent_ids",
}

// actOn makes the call of the command about a conversation or an agent.
func (s *session) actOn(ctx context.Context, peer string, arguments object, more string) error {
	_, action, _ := strings.Cut(s.command, " ")
	return s.act(ctx, agent.OperationOf(s.command), peer, arguments, audienceLines[action]+more)
}

// audienceOf is the argument that names a group chat or a channel, by the command that it belongs to.
type audienceOf struct {
	Conversation string `arg:"" help:"Its id, the name of a group chat in the contacts, or the name of a channel."`
}

// find returns the conversation and the arguments of a call about it. An id is not looked up.
func (a audienceOf) find(ctx context.Context, s *session) (agent.Contact, object, error) {
	kind := agent.KindGroup
	if strings.HasPrefix(s.command, "channel ") {
		kind = agent.KindChannel
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return agent.Contact{}, nil, err
	}
	found := agent.Contact{ID: a.Conversation, Kind: kind}
	prefix := strings.TrimSuffix(placeholders[kind], noID)
	if !strings.HasPrefix(a.Conversation, prefix) || contacts.ByID(a.Conversation) != nil {
		found, err = s.contact(ctx, a.Conversation, kind)
	}
	return found, object{agent.OperationsOf[kind].ID: found.ID}, err
}

// audienceAction makes a call without further arguments.
type audienceAction struct{ audienceOf }

func (a *audienceAction) Run(ctx context.Context, s *session) error {
	of, arguments, err := a.find(ctx, s)
	if err != nil {
		return err
	}
	more := ""
	if s.command == "channel subscribe" {
		more = "; " + untrusted + of.ID
	}
	return s.actOn(ctx, of.ID, arguments, more)
}

// final asks a person before what cannot be taken back. A program must say that it means it.
type final struct {
	Yes bool `help:"Do it without a question. Needed without a terminal."`
}

func (f final) agreed(s *session, question string) error {
	if f.Yes || s.pay.DryRun {
		return nil
	}
	if !console.CanAsk() {
		return console.Usagef("this is final, and there is no terminal to ask you in; add --yes to agree")
	}
	yes, err := s.confirm(question + " This is final.")
	if err == nil && !yes {
		err = errors.New("not agreed; nothing was done")
	}
	return err
}

type audienceDelete struct {
	audienceAction
	final
}

func (a *audienceDelete) Run(ctx context.Context, s *session) error {
	if err := a.agreed(s, "Delete "+agent.VisibleName(a.Conversation)+" for everybody?"); err != nil {
		return err
	}
	return a.audienceAction.Run(ctx, s)
}

// audienceMembers changes members, subscribers or bans.
type audienceMembers struct {
	audienceOf
	Names []string `arg:"" help:"Usernames or ids of agents."`
}

func (a *audienceMembers) Run(ctx context.Context, s *session) error {
	of, arguments, err := a.find(ctx, s)
	if err != nil {
		return err
	}
	if arguments[memberFields[s.command]], err = s.agentIDs(ctx, a.Names); err != nil {
		return err
	}
	return s.actOn(ctx, of.ID, arguments, "")
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

type audienceEdit struct {
	audienceOf
	Name *string `placeholder:"NAME" help:"The new name."`
	visibility
}

func (a *audienceEdit) Run(ctx context.Context, s *session) error {
	if a.Name == nil && a.visibility == (visibility{}) {
		return console.Usagef("name what to change; --help lists the flags")
	}
	of, arguments, err := a.find(ctx, s)
	if err != nil {
		return err
	}
	if a.Name != nil {
		arguments["name"] = *a.Name
	}
	return s.actOn(ctx, of.ID, a.add(arguments), "")
}

type audienceTransfer struct {
	audienceOf
	final
	To      string `arg:"" help:"Username or id of the next admin."`
	Message string `placeholder:"TEXT" help:"A note to the next admin."`
}

func (a *audienceTransfer) Run(ctx context.Context, s *session) error {
	if err := a.agreed(s, "Make "+agent.VisibleName(a.To)+" the admin of "+agent.VisibleName(a.Conversation)+" in your place?"); err != nil {
		return err
	}
	_, arguments, err := a.find(ctx, s)
	if err != nil {
		return err
	}
	admin, err := s.contact(ctx, a.To, agent.KindAgent)
	if err != nil {
		return err
	}
	arguments["new_admin_agent_id"] = admin.ID
	return s.actOn(ctx, admin.ID, withText(arguments, "message", a.Message), admin.String())
}

// withText adds an argument unless it is empty.
func withText(arguments object, name, text string) object {
	if text != "" {
		arguments[name] = text
	}
	return arguments
}

type audienceInfo struct{ audienceOf }

func (a *audienceInfo) Run(ctx context.Context, s *session) error {
	of, _, err := a.find(ctx, s)
	if err != nil {
		return err
	}
	return s.info(ctx, of)
}
