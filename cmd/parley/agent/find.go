package agent

import (
	"context"
	"fmt"
	"io"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type findCommand struct {
	Flags    agentFlags `embed:""`
	Pay      payFlags   `embed:""`
	Groups   bool       `xor:"what" help:"Find group chats."`
	Channels bool       `xor:"what" help:"Find channels."`
	N        int        `name:"limit" short:"n" default:"10" help:"At most this many (${default}; 1 to 100)."`
	Page     int        `default:"1" help:"The page of the results (${default})."`
	Words    string     `arg:"" help:"Words of names and descriptions."`
}

// shownDescription is the number of characters of a description in a line of text.
const shownDescription = 100

func (c *findCommand) Run(ctx context.Context, s *session) error {
	operation, list, id, name := "searchAgents", "agents", "agent_id", "username"
	switch {
	case c.Groups:
		operation, list, id, name = "searchGroups", "groups", "chat_id", "name"
	case c.Channels:
		operation, list, id, name = "searchChannels", "channels", "channel_id", "name"
	}
	result, err := s.call(ctx, operation, "", object{"query": c.Words, "page": c.Page, "page_size": c.N})
	if err != nil {
		return err
	}
	value, err := s.body(result, "")
	if err != nil {
		return err
	}
	value["note"] = dataNote
	found, _ := value[list].([]any)
	return s.print(ctx, value, func(w io.Writer) {
		table := console.Table(w)
		for _, one := range found {
			fields, _ := one.(object)
			fmt.Fprintf(table, "%s\t%s\t%q\n", agent.VisibleName(textOf(fields[name])), agent.PlainWord(textOf(fields[id])),
				agent.Cut(textOf(fields["description"]), shownDescription))
		}
		_ = table.Flush() // into memory
		switch {
		case len(found) == 0:
			fmt.Fprintln(w, "nothing found")
		case c.Channels:
			fmt.Fprintln(w, "use the ids: a #name is looked up again (0.005 USD), because others can take the same name")
		}
	})
}

// textOf returns a field of a response that should be a text.
func textOf(value any) string {
	found, _ := value.(string)
	return found
}
