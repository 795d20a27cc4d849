package mcpserver

import (
	"fmt"
	"slices"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// pageSize is the number of messages of one fetch.
const pageSize = 50

func inbox(c *call) error {
	if _, err := c.known(c.text("from")); err != nil { // several have the name
		return err
	}
	if c.number("last_minutes") > 0 || c.text("after_message_id") != "" {
		messages, err := c.storedInbox()
		if err != nil {
			return err
		}
		return c.showInbox(&client.UnreadPage{Messages: messages}, "from the local store")
	}
	page, err := c.fetchInbox()
	if err != nil {
		return err
	}
	return c.showInbox(page, fmt.Sprintf("of %d unread", page.TotalUnread))
}

// storedInbox returns fetched messages that are stored.
func (c *call) storedInbox() ([]client.UnreadMessage, error) {
	all, err := c.messagesFrom(unreadOperation)
	if err != nil {
		return nil, err
	}
	if after := c.text("after_message_id"); after != "" {
		i := slices.IndexFunc(all, func(m client.UnreadMessage) bool { return m.MessageID == after })
		if i < 0 {
			return nil, fmt.Errorf("no stored message has the id %s", agent.VisibleName(after))
		}
		all = all[i+1:]
	}
	if minutes := c.number("last_minutes"); minutes > 0 {
		since := time.Now().Add(-time.Duration(minutes) * time.Minute)
		all = slices.DeleteFunc(all, func(m client.UnreadMessage) bool { return agent.Time(m.CreatedAt).Before(since) })
	}
	return all, nil
}

// fetchInbox fetches unread messages.
func (c *call) fetchInbox() (*client.UnreadPage, error) {
	arguments := map[string]any{"page_size": pageSize}
	if wait := c.number("wait_seconds"); wait > 0 {
		arguments["wait"] = wait
	}
	_, page, err := c.agent.Fetch(c.ctx, arguments, c.flag("keep_unread"), func(arguments map[string]any) (*agent.Result, error) {
		return c.make(unreadOperation, "", arguments)
	})
	return page, err
}

// showInbox shows the messages of a page that are from the caller's choice. Who wrote is known only after the fetch.
func (c *call) showInbox(page *client.UnreadPage, where string) error {
	shown := page.Messages
	if name := c.text("from"); name != "" {
		from, err := c.known(name)
		if err != nil {
			return err
		}
		shown = slices.DeleteFunc(slices.Clone(shown), func(m client.UnreadMessage) bool { return from == nil || !of(m, *from) })
	}
	c.line("%s %s:", count(len(shown), "message"), where)
	if more := page.TotalUnread - int64(len(page.Messages)); more > 0 {
		c.facts["more_unread"] = more
		c.note("%d more are unread: call parley_inbox again.", more)
	}
	if others := len(page.Messages) - len(shown); others > 0 {
		c.facts["others"] = others
		c.note("%d from others are not shown; they are free with last_minutes.", others)
	}
	judged, err := c.judged(shown, "")
	if err != nil {
		return err
	}
	c.show(judged, c.flag("detailed"), false)
	return c.showNotices(page.Notices)
}

// maxNotices is the number of notices that are shown.
const maxNotices = 20

// showNotices shows what other agents did to the caller. Names of conversations of strangers are left out.
func (c *call) showNotices(notices []client.Notice) error {
	if len(notices) == 0 {
		return nil
	}
	contacts, err := c.agent.Contacts()
	if err != nil {
		return err
	}
	var texts []string
	for _, n := range notices[:min(len(notices), maxNotices)] {
		in := agent.PlainWord(n.SourceID)
		if known := contacts.ByID(n.SourceID); known != nil {
			in = known.String()
		}
		texts = append(texts, fmt.Sprintf("notice: %s by %s in %s at %s", agent.PlainWord(string(n.Type)), agent.PlainWord(n.ActorUsername), in,
			agent.Time(n.CreatedAt).Format(time.DateTime)))
	}
	c.lines = append(c.lines, texts...)
	c.facts["notices"] = texts
	if left := len(notices) - maxNotices; left > 0 {
		c.line("%d more notices are not shown.", left)
	}
	return nil
}

// count returns a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
