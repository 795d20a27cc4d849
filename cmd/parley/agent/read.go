package agent

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type readCommand struct {
	Flags     agentFlags `embed:""`
	Pay       payFlags   `embed:""`
	N         *int       `name:"limit" short:"n" help:"The latest messages, at most this many (1 to 250): by default 20, with --grep 50."`
	Grep      string     `placeholder:"RE" help:"Only messages that match this regular expression (RE2)."`
	Literal   bool       `help:"Take the expression of --grep as plain text."`
	Before    string     `placeholder:"ID" help:"Only messages before this one."`
	Keep      bool       `help:"Leave the messages unread."`
	Strangers bool       `help:"Show the text of senders that are not trusted, even when a program reads the output."`
	To        string     `arg:"" help:"A username, #channel, the name of a group chat in the contacts, or an id."`
}

// defaultRead is how many messages are read without -n.
const defaultRead = 20

func (c *readCommand) Run(ctx context.Context, s *session) error {
	if c.Literal && c.Grep == "" {
		return console.Usagef("--literal needs --grep")
	}
	if err := agent.CheckQuery(c.Grep, c.Literal); err != nil {
		return console.Usagef("%w; nothing was paid. Take it as plain text with --literal", err)
	}
	if c.N != nil && *c.N < 1 {
		return console.Usagef("-n must be at least 1")
	}
	to, err := s.contact(ctx, c.To)
	if err != nil {
		return err
	}
	conversation := to.ID
	if to.Kind == agent.KindAgent {
		if conversation, err = s.chat(ctx, to); err != nil {
			return err
		}
	}
	of := agent.OperationsOf[to.Kind]
	operation, arguments := of.List, object{of.Conversation: conversation}
	if c.Grep != "" {
		operation, arguments["query"], arguments["literal"] = of.Search, c.Grep, c.Literal
	} else {
		arguments["n"], arguments["mark_read"] = *cmp.Or(c.N, new(defaultRead)), !c.Keep
	}
	if c.Before != "" {
		arguments["before_message_id"] = c.Before
	}
	result, err := s.call(ctx, operation, to.ID, arguments)
	if err != nil {
		return err
	}
	return c.show(ctx, s, to, conversation, result)
}

// chat returns the id of the private chat. A dry run does not look it up.
func (s *session) chat(ctx context.Context, with agent.Contact) (string, error) {
	if s.pay.DryRun && with.Chat == "" {
		return placeholders[agent.KindGroup], nil
	}
	return s.agent.Chat(ctx, with)
}

func (c *readCommand) show(ctx context.Context, s *session, to agent.Contact, conversation string, result *agent.Result) error {
	var page struct {
		Messages []client.Message `json:"messages"`
		Total    *int64           `json:"total"`
		Matched  client.MatchedAs `json:"matched_as"`
		Next     string           `json:"next_before_message_id"`
	}
	if err := s.agent.Decode(ctx, result, &page); err != nil {
		return err
	}
	if c.N != nil && len(page.Messages) > *c.N { // a search has no such argument
		page.Messages = page.Messages[:*c.N]
		page.Next = page.Messages[*c.N-1].MessageID
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	v := view{contacts: contacts, self: s.config.Username, all: c.Strangers || !s.wantsJSON()}
	messages := []shownMessage{}
	for _, m := range page.Messages {
		messages = append(messages, v.message(m, conversation))
	}
	slices.Reverse(messages) // the server returns the newest first
	value := object{"conversation": to.Plain(), "conversation_id": conversation, "messages": messages, "note": dataNote}
	if page.Total != nil {
		value["total"] = *page.Total
	}
	if page.Matched != "" {
		value["matched_as"] = agent.PlainWord(string(page.Matched))
	}
	if page.Next != "" {
		value["next_before_message_id"] = agent.VisibleName(page.Next)
	}
	return s.print(ctx, value, func(w io.Writer) {
		writeMessages(w, messages)
		if page.Matched != "" {
			fmt.Fprintln(w, "matched as:", value["matched_as"])
		}
		if len(messages) == 0 {
			fmt.Fprintln(w, "no messages")
		}
		if page.Next != "" {
			fmt.Fprintln(w, "older ones: --before", agent.VisibleName(page.Next))
		}
	})
}
