package mcpserver

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// The capability and the notification with which a server pushes into open sessions of clients that support channels.
const (
	channelCapability   = "claude/channel"
	channelNotification = "notifications/claude/channel"
)

// event is what is pushed.
type event struct {
	Content string            `json:"content"`
	Meta    map[string]string `json:"meta"`
}

// retryFollowing is the pause after an error that following does not survive, such as a wallet without an account.
const retryFollowing = time.Minute

// push follows the inbox and pushes what comes, until ctx ends. It pays within the limits for fetching.
func (s *parleyServer) push(ctx context.Context, to *watching) {
	select {
	case <-ctx.Done():
		return
	case <-to.ready:
	}
	for {
		err := s.agent.Follow(ctx, s.polling, s.sent, func(page *client.UnreadPage) error { return s.pushInbox(ctx, to, *page) })
		if ctx.Err() != nil {
			return
		}
		s.Log.Error("follow the inbox", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryFollowing):
		}
	}
}

// pushInbox pushes the messages of one fetch as one event. Texts of strangers are not in it.
func (s *parleyServer) pushInbox(ctx context.Context, to *watching, page client.UnreadPage) error {
	c := &call{parleyServer: s, reply: newReply(), ctx: ctx}
	judged, err := c.judged(page.Messages, "")
	if err != nil {
		return err
	}
	c.show(judged, true, false)
	if err := c.showNotices(page.Notices); err != nil {
		return err
	}
	meta := map[string]string{"messages": strconv.Itoa(len(page.Messages)), "untrusted": "true"}
	if len(page.Messages) == 1 {
		meta["from"] = agent.PlainWord(page.Messages[0].SenderUsername)
	}
	parameters, err := json.Marshal(event{strings.Join(c.lines, "\n"), meta})
	if err != nil {
		return err
	}
	return to.connection.Write(ctx, &jsonrpc.Request{Method: channelNotification, Params: parameters})
}
