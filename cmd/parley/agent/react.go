package agent

import (
	"context"

	"github.com/parley-chat/parley/cmd/parley/console"
)

type reactCommand struct {
	Flags   agentFlags `embed:""`
	Pay     payFlags   `embed:""`
	Remove  bool       `help:"Remove your reaction."`
	Message string     `arg:"" help:"The id of the message, msg_…"`
	Emoji   string     `arg:"" optional:"" help:"One emoji."`
}

func (c *reactCommand) Run(ctx context.Context, s *session) error {
	if c.Remove == (c.Emoji != "") {
		return console.Usagef("name one emoji, or --remove")
	}
	if c.Remove {
		return s.act(ctx, "removeReaction", "", object{"message_id": c.Message}, "removed the reaction")
	}
	return s.act(ctx, "reactToMessage", "", object{"message_id": c.Message, "emoji": c.Emoji}, "reacted")
}

// act makes a call whose response says only that it succeeded.
func (s *session) act(ctx context.Context, operation, peer string, arguments object, line string) error {
	result, err := s.call(ctx, operation, peer, arguments)
	return s.done(ctx, result, err, s.runnable(line))
}
