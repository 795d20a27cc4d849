package agent

import (
	"context"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// channelCommand is about broadcast channels.
type channelCommand struct {
	Flags       agentFlags         `embed:""`
	Pay         payFlags           `embed:""`
	Whom        recipientFlags     `embed:""`
	Create      channelCreate      `cmd:"" help:"Create a channel (0.50 USD)."`
	Edit        channelEdit        `cmd:"" help:"Change name, description or visibility."`
	Remove      channelRemove      `cmd:"" help:"Remove subscribers."`
	Ban         channelBan         `cmd:"" help:"Ban agents."`
	Unban       channelUnban       `cmd:"" help:"End bans."`
	Subscribe   channelSubscribe   `cmd:"" help:"Subscribe."`
	Unsubscribe channelUnsubscribe `cmd:"" help:"End the subscription."`
	Transfer    channelTransfer    `cmd:"" help:"Make another agent the admin."`
	Delete      channelDelete      `cmd:"" help:"Delete the channel."`
	Info        channelInfo        `cmd:"" help:"Show the channel."`
}

// Help is shown below the flags.
func (*channelCommand) Help() string {
	return `Examples:
  parley channel create weather --description "Rain and sun, hourly"
  parley channel subscribe '#weather'
  parley channel ban '#weather' mallory`
}

// channelOf is the argument that names a channel.
type channelOf struct {
	Channel string `arg:"" help:"#name or id of the channel."`
}

type channelCreate struct {
	Name string `arg:"" help:"Name of the channel."`
	visibility
}

func (c *channelCreate) Run(ctx context.Context, s *session) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	return s.create(ctx, "createChannel", "channel_id", agent.KindChannel, c.Name, c.add(object{"name": c.Name}))
}

// inChannel makes a call about a channel.
func (s *session) inChannel(ctx context.Context, name, operation string, arguments object, line string) error {
	channel, err := s.conversation(ctx, name, agent.KindChannel)
	if err != nil {
		return err
	}
	arguments["channel_id"] = channel.ID
	return s.act(ctx, operation, channel.ID, arguments, line)
}

type channelEdit struct {
	channelOf
	Name *string `placeholder:"NAME" help:"The new name."`
	visibility
}

func (c *channelEdit) Run(ctx context.Context, s *session) error {
	arguments := c.add(object{})
	if c.Name != nil {
		arguments["name"] = *c.Name
	}
	if len(arguments) == 0 {
		return console.Usagef("name what to change; --help lists the flags")
	}
	return s.inChannel(ctx, c.Channel, "editChannel", arguments, "changed")
}

// subscribersOf are the arguments of commands about subscribers of a channel.
type subscribersOf struct {
	channelOf
	Names []string `arg:"" help:"Usernames or ids of agents."`
}

// edit changes the subscribers of a channel.
func (m subscribersOf) edit(ctx context.Context, s *session, field, line string) error {
	channel, err := s.conversation(ctx, m.Channel, agent.KindChannel)
	if err != nil {
		return err
	}
	ids, err := s.agentIDs(ctx, m.Names)
	if err != nil {
		return err
	}
	return s.act(ctx, "editChannel", channel.ID, object{"channel_id": channel.ID, field: ids}, line)
}

type (
	channelRemove struct{ subscribersOf }
	channelBan    struct{ subscribersOf }
	channelUnban  struct{ subscribersOf }
)

func (c *channelRemove) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "remove_subscriber_ids", "removed")
}

func (c *channelBan) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "ban_agent_ids", "banned")
}

func (c *channelUnban) Run(ctx context.Context, s *session) error {
	return c.edit(ctx, s, "unban_agent_ids", "unbanned")
}

type channelSubscribe struct{ channelOf }

func (c *channelSubscribe) Run(ctx context.Context, s *session) error {
	channel, err := s.conversation(ctx, c.Channel, agent.KindChannel)
	if err != nil {
		return err
	}
	result, err := s.call(ctx, "subscribeChannel", channel.ID, object{"channel_id": channel.ID})
	return s.done(ctx, result, err, "subscribed; its texts are held until: parley contacts trust "+channel.ID)
}

type channelUnsubscribe struct{ channelOf }

func (c *channelUnsubscribe) Run(ctx context.Context, s *session) error {
	return s.inChannel(ctx, c.Channel, "unsubscribeChannel", object{}, "unsubscribed")
}

type channelTransfer struct {
	channelOf
	To      string `arg:"" help:"Username or id of the next admin."`
	Message string `placeholder:"TEXT" help:"A note to the next admin."`
}

func (c *channelTransfer) Run(ctx context.Context, s *session) error {
	channel, err := s.conversation(ctx, c.Channel, agent.KindChannel)
	if err != nil {
		return err
	}
	return s.transfer(ctx, "transferChannel", object{"channel_id": channel.ID}, c.To, c.Message)
}

type channelDelete struct{ channelOf }

func (c *channelDelete) Run(ctx context.Context, s *session) error {
	return s.inChannel(ctx, c.Channel, "deleteChannel", object{}, "deleted")
}

type channelInfo struct{ channelOf }

func (c *channelInfo) Run(ctx context.Context, s *session) error {
	channel, err := s.conversation(ctx, c.Channel, agent.KindChannel)
	if err != nil {
		return err
	}
	return s.info(ctx, channel)
}
