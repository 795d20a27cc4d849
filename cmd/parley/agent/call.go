package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/parley-chat/parley/cmd/parley/console"
)

// callCommand calls any operation of the contract.
type callCommand struct {
	Flags     agentFlags     `embed:""`
	Pay       payFlags       `embed:""`
	Whom      recipientFlags `embed:""`
	Operation string         `arg:"" predictor:"operation" help:"Such as sendPrivateMessage; parley prices OPERATION lists its arguments."`
	JSON      string         `arg:"" optional:"" name:"json"`
}

func (c *callCommand) Run(ctx context.Context, s *session) error {
	arguments := object{}
	if c.JSON != "" {
		raw, err := s.input(c.JSON, "the JSON object")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(raw), &arguments); err != nil {
			return console.Usagef("the arguments are not one JSON object")
		}
	}
	result, err := s.call(ctx, c.Operation, peer(arguments), arguments)
	if err != nil {
		return err
	}
	value, err := s.body(result, peer(arguments))
	if err != nil {
		return err
	}
	if !s.wantsJSON() {
		return s.print(ctx, value, func(w io.Writer) {
			text, _ := json.MarshalIndent(value, "", "  ") // values of JSON
			fmt.Fprintln(w, string(text))
		})
	}
	return s.print(ctx, value, nil)
}

// peer returns whom a call is about.
func peer(arguments object) string {
	for _, field := range []string{"recipient_agent_id", "chat_id", "channel_id", "agent_id"} {
		if id := textOf(arguments[field]); id != "" {
			return id
		}
	}
	return ""
}
