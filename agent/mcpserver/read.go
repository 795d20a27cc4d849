package mcpserver

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// historySize is the number of messages of parley_read if the caller names none, and searchSize that of a page of matches.
const (
	historySize = 20
	searchSize  = 50
)

func read(c *call) error {
	if id := c.text("message_id"); id != "" {
		return c.readOne(id)
	}
	query, literal := c.text("search"), c.flag("literal")
	if err := agent.CheckQuery(query, literal); err != nil {
		return wrong("%v; with literal: true it is searched as plain text", err)
	}
	with, err := c.to("conversation")
	if err != nil {
		return err
	}
	if c.flag("stored") {
		return c.readStored(with, query, literal)
	}
	of, err := c.conversation(with)
	if err != nil {
		return err
	}
	operations := agent.OperationsOf[with.Kind]
	arguments := map[string]any{operations.Conversation: of.id}
	c.copyTo(arguments, map[string]string{"before_message_id": "before_message_id"})
	operation := operations.List
	if query != "" {
		operation, arguments["query"], arguments["literal"] = operations.Search, query, literal
	} else {
		arguments["n"] = cmp.Or(c.number("n"), historySize)
	}
	var page struct {
		client.MessagePage
		MatchedAs client.MatchedAs `json:"matched_as"`
	}
	if err := c.do(operation, with.ID, arguments, &page); err != nil {
		return err
	}
	if query != "" { // the service returns a whole page, and says only where one begins that was cut short
		shown := min(cmp.Or(c.number("n"), searchSize), searchSize, len(page.Messages))
		if shown > 0 && (shown < len(page.Messages) || shown == searchSize && page.NextBeforeMessageID == nil) {
			page.NextBeforeMessageID = &page.Messages[shown-1].MessageID
		}
		page.Messages = page.Messages[:shown]
	}
	c.reactions = reactionsOf(page.Messages)
	c.line("%s of %s:", count(len(page.Messages), "message"), with.String())
	if page.MatchedAs != "" {
		c.facts["matched_as"] = agent.PlainWord(string(page.MatchedAs))
		c.line("matched as %s", c.facts["matched_as"])
	}
	if page.NextBeforeMessageID != nil {
		c.facts["next_before"] = agent.PlainWord(*page.NextBeforeMessageID)
		c.note("Older ones: before_message_id %s.", agent.PlainWord(*page.NextBeforeMessageID))
	}
	return c.showHistory(of.of(page.Messages))
}

// conversation returns the conversation with a contact. That with an agent is their private chat.
func (c *call) conversation(with agent.Contact) (conversation, error) {
	if with.Kind != agent.KindAgent {
		return conversation{agent.OperationsOf[with.Kind].Source, with.ID, with.Name}, nil
	}
	chat, err := c.agent.Chat(c.ctx, with)
	return conversation{client.SourceTypePrivateChat, chat, ""}, err
}

// showHistory shows messages of one conversation, the oldest first.
func (c *call) showHistory(all []client.UnreadMessage) error {
	slices.SortStableFunc(all, func(a, b client.UnreadMessage) int { return agent.Time(a.CreatedAt).Compare(agent.Time(b.CreatedAt)) })
	own, err := c.ownID()
	if err != nil {
		return err
	}
	if own == "" && slices.ContainsFunc(all, func(m client.UnreadMessage) bool { return m.SourceType == client.SourceTypePrivateChat }) {
		var me client.OwnAgent // without it, the caller's own messages would be held
		if err := c.do("getOwnAgent", "", nil, &me); err != nil {
			return err
		}
		own = me.AgentID
	}
	judged, err := c.judged(all, own)
	if err != nil {
		return err
	}
	c.show(judged, c.flag("detailed"), true)
	return nil
}

// readStored shows the latest stored messages of a conversation, or those of them that a query matches, as at the service.
func (c *call) readStored(with agent.Contact, query string, literal bool) error {
	all, err := c.stored()
	if err != nil {
		return err
	}
	if literal {
		query = regexp.QuoteMeta(query)
	}
	matches, err := regexp.Compile("(?i)" + norm.NFC.String(query))
	if err != nil {
		return wrong("the query: %v", err)
	}
	all = slices.DeleteFunc(all, func(m client.UnreadMessage) bool {
		return !of(m, with) || with.Kind == agent.KindAgent && m.SourceType != client.SourceTypePrivateChat
	})
	if before := c.text("before_message_id"); before != "" {
		i := slices.IndexFunc(all, func(m client.UnreadMessage) bool { return m.MessageID == before })
		if i < 0 {
			return fmt.Errorf("no stored message of %s has the id %s", with.String(), agent.VisibleName(before))
		}
		all = all[:i]
	}
	all = slices.DeleteFunc(all, func(m client.UnreadMessage) bool { return !matches.MatchString(norm.NFC.String(m.Content)) })
	all = all[max(0, len(all)-cmp.Or(c.number("n"), historySize)):]
	c.line("%s of %s from the local store:", count(len(all), "message"), with.String())
	return c.showHistory(all)
}

// part is the number of characters of one long text that are shown at once, before hidden ones are made visible.
const part = 6_000

// readOne shows the text of one stored message from an offset.
func (c *call) readOne(id string) error {
	all, err := c.stored()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(m client.UnreadMessage) bool { return m.MessageID == id })
	if i < 0 {
		return fmt.Errorf("no stored message has the id %s; parley_read with its conversation fetches it", agent.VisibleName(id))
	}
	own, err := c.ownID()
	if err != nil {
		return err
	}
	judged, err := c.judged(all[i:i+1], own)
	if err != nil {
		return err
	}
	m := judged[0]
	characters := []rune(m.Content)
	from := c.number("offset")
	if from > 0 && from >= len(characters) {
		return wrong("offset: the text has %d characters", len(characters))
	}
	rest := characters[from:]
	if m.held || from == 0 && len(rest) == 0 {
		c.show(judged, true, true)
		return nil
	}
	for size := part; ; size /= 2 {
		m.Content = string(rest[:min(size, len(rest))])
		shown := c.render(m, size, true)
		if utf8.RuneCountInString(shown.text) > maxText && size > 1 {
			continue
		}
		c.untrusted(shown.text)
		c.facts["messages"] = []any{shown.facts}
		if to := from + utf8.RuneCountInString(m.Content); to < len(characters) {
			c.facts["next_offset"] = to
			c.note("Characters %d to %d of %d. The rest: offset %d.", from, to, len(characters), to)
		}
		return nil
	}
}
