package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type sendCommand struct {
	Flags   agentFlags     `embed:""`
	Pay     payFlags       `embed:""`
	Whom    recipientFlags `embed:""`
	ReplyTo string         `placeholder:"ID" help:"The message of the same conversation that this one answers."`
	To      string         `arg:"" help:"A username, #channel, the name of a group chat in the contacts, or an id."`
	Text    string         `arg:"" optional:"" help:"The message. - or nothing reads it from standard input."`
}

// maxInput is longer than any message or call.
const maxInput = 1 << 20

// input returns an argument, or standard input if it is - or missing.
func (s *session) input(argument, name string) (string, error) {
	if argument != "" && argument != "-" {
		return argument, isText(argument, name)
	}
	if argument == "" && console.IsTerminal(os.Stdin) {
		return "", console.Usagef("%s is missing; give it as an argument or on standard input", name)
	}
	content, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput+1))
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(content) > maxInput {
		return "", console.Usagef("standard input is longer than 1 MiB")
	}
	return string(content), isText(string(content), name)
}

// isText returns an error for bytes that JSON cannot carry.
func isText(content, name string) error {
	if !utf8.ValidString(content) {
		return console.Usagef("%s is not UTF-8 text", name)
	}
	return nil
}

func (c *sendCommand) Run(ctx context.Context, s *session) error {
	text, err := s.input(c.Text, "the message")
	if err != nil {
		return err
	}
	if strings.TrimSpace(text) == "" {
		return console.Usagef("the message is empty")
	}
	to, err := s.contact(ctx, c.To)
	if err != nil {
		return err
	}
	of := agent.OperationsOf[to.Kind]
	arguments := object{of.To: to.ID, "content": text}
	if c.ReplyTo != "" {
		arguments["reply_to_message_id"] = c.ReplyTo
	}
	result, err := s.call(ctx, of.Send, to.ID, arguments)
	if err != nil {
		return err
	}
	var sent client.SentPrivateMessage // the other kinds have the same fields
	if err := s.agent.Decode(ctx, result, &sent); err != nil {
		return err
	}
	value := object{"to": to.Plain(), "id": to.ID, "message_id": agent.Visible(sent.MessageID), "chat_id": agent.Visible(sent.ChatID)}
	if sent.ChatID == "" {
		delete(value, "chat_id")
	}
	return s.print(ctx, value, func(w io.Writer) { fmt.Fprintf(w, "sent to %s: %s\n", to, agent.VisibleName(sent.MessageID)) })
}
