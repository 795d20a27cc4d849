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
	var filter *agent.Contact
	var err error
	if name := c.text("from"); name != "" {
		if filter, err = c.known(name); err != nil {
			return err
		}
		if filter == nil {
			return wrong("%s is not in the contact book: nothing has come from there", agent.VisibleName(name))
		}
	}
	page := &client.UnreadPage{}
	if c.number("last_minutes") > 0 || c.text("after_message_id") != "" {
		page.Messages, err = c.storedInbox()
	} else {
		page, err = c.fetchInbox()
	}
	if err != nil {
		return err
	}
	return c.showInbox(page, filter)
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
	c.line("%s from the local store:", count(len(all), "message"))
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
	if err != nil {
		return nil, err
	}
	c.line("%s of %d unread:", count(len(page.Messages), "message"), page.TotalUnread)
	if more := page.TotalUnread - int64(len(page.Messages)); more > 0 {
		c.facts["more_unread"] = more
		c.note("%d more are unread: call parley_inbox again.", more)
	}
	return page, nil
}

func (c *call) showInbox(page *client.UnreadPage, filter *agent.Contact) error {
	if filter != nil {
		before := len(page.Messages)
		page.Messages = slices.DeleteFunc(page.Messages, func(m client.UnreadMessage) bool { return !of(m, *filter) })
		if others := before - len(page.Messages); others > 0 {
			c.facts["others"] = others
			c.note("%d from others are not shown; they are free with last_minutes.", others)
		}
	}
	judged, err := c.judged(page.Messages, "")
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
