package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type inboxCommand struct {
	Flags     agentFlags `embed:""`
	Pay       payFlags   `embed:""`
	Following following  `embed:""`
	Keep      bool       `help:"Leave the messages unread."`
	From      string     `placeholder:"NAME"`
	Cached    bool       `help:"Show the messages of the last calls again, from the local copy. Free."`
	Strangers bool       `help:"Show the text of senders that are not trusted, even when a program reads the output."`
	N         int        `name:"limit" short:"n" default:"50" help:"At most this many messages (${default}; 1 to 250)."`
}

// cachedPages is how many of the last responses are read from the local copy.
const cachedPages = 20

func (c *inboxCommand) Run(ctx context.Context, s *session) error {
	f := c.Following
	switch {
	case !f.Follow && (f.Exec != "" || f.ForwardTo != "" || f.WakeStrangers):
		return console.Usagef("--exec, --forward-to and --wake-strangers need --follow")
	case f.Follow && (c.Cached || c.Keep):
		return console.Usagef("--follow takes neither --cached nor --keep")
	case f.Follow:
		return c.follow(ctx, s)
	}
	pages, err := c.pages(ctx, s)
	if err != nil {
		return err
	}
	shown, notices, others, err := c.view(s, pages)
	if err != nil {
		return err
	}
	value := object{"messages": shown, "notices": notices, "others": others, "note": dataNote}
	if !c.Cached {
		value["total_unread"] = pages[0].TotalUnread
	}
	return s.print(ctx, value, func(w io.Writer) {
		writeMessages(w, shown)
		for _, n := range notices {
			fmt.Fprintf(w, "notice: %s by %s: %s\n", n["type"], n["by"], n["in"])
		}
		if len(shown)+len(notices) == 0 {
			fmt.Fprintln(w, "no messages")
		}
		if others > 0 {
			fmt.Fprintf(w, "%d messages of others: %s\n", others, s.runnable("parley inbox --cached"))
		}
	})
}

// view returns what is shown of the pages, and how many messages are not because of --from.
func (c *inboxCommand) view(s *session, pages []client.UnreadPage) (shown []shownMessage, notices []object, others int, err error) {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return nil, nil, 0, err
	}
	var only *agent.Contact
	if c.From != "" {
		if only, err = contacts.Find(c.From); err != nil {
			return nil, nil, 0, console.Usage(err)
		}
	}
	fits := func(sender, senderID, source string) bool {
		return c.From == "" || sender == c.From || only != nil && (only.ID == senderID || only.ID == source)
	}
	v := view{contacts: contacts, self: s.config.Username, all: c.Strangers || !s.wantsJSON()}
	seen := map[string]bool{}
	shown, notices = []shownMessage{}, []object{} // JSON has [] and not null
	for _, page := range pages {
		for _, m := range page.Messages {
			switch {
			case seen[m.MessageID]:
			case fits(m.SenderUsername, m.SenderID, m.SourceID):
				shown = append(shown, v.unread(m))
			default:
				others++
			}
			seen[m.MessageID] = true
		}
		for _, n := range page.Notices {
			if fits(n.ActorUsername, n.ActorID, n.SourceID) {
				notices = append(notices, v.notice(n))
			}
		}
	}
	if c.Cached && len(shown) > c.N {
		shown = shown[len(shown)-c.N:]
	}
	return shown, notices, others, nil
}

// pages returns the unread messages of the server, or the messages of the local copy.
func (c *inboxCommand) pages(ctx context.Context, s *session) (pages []client.UnreadPage, err error) {
	if c.Cached {
		bodies, err := s.agent.Stored(ctx, fetchOperation, cachedPages)
		if err != nil {
			return nil, err
		}
		for _, body := range bodies {
			var page client.UnreadPage
			if json.Unmarshal(body, &page) == nil { // else it was reported when it came
				pages = append(pages, page)
			}
		}
		return pages, nil
	}
	_, page, err := s.agent.Fetch(ctx, object{"page_size": c.N}, c.Keep, func(arguments map[string]any) (*agent.Result, error) {
		return s.call(ctx, fetchOperation, "", arguments)
	})
	if err != nil {
		return nil, err
	}
	return []client.UnreadPage{*page}, nil
}
