package mcpserver

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
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

// push follows the inbox and pushes what comes, until ctx ends. It pays within the daily limit.
func (s *parleyServer) push(ctx context.Context, to *watching) {
	select {
	case <-ctx.Done():
		return
	case <-to.ready:
	}
	if !to.hears.Load() {
		s.Log.Warn("the client does not declare the capability " + channelCapability + "; messages stay unread until parley_inbox")
		return
	}
	for {
		a, err := s.open()
		if err == nil {
			err = a.Follow(ctx, s.polling, func(page *agent.Page) error { return s.pushInbox(ctx, to, a, page) })
		}
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

// pushInbox pushes the messages of one fetch as one event.
func (s *parleyServer) pushInbox(ctx context.Context, to *watching, a *agent.Agent, page *agent.Page) error {
	value, err := a.Inbox(ctx, page, room)
	if err != nil {
		return err
	}
	meta := map[string]string{"messages": strconv.Itoa(len(page.Messages)), "untrusted": "true"}
	if len(page.Messages) == 1 {
		meta["from"] = agent.PlainWord(page.Messages[0].SenderUsername)
	}
	text := s.result(value, nil).Content[0].(*mcp.TextContent).Text //nolint:forcetypeassert // as it makes it
	parameters, err := json.Marshal(event{text, meta})
	if err != nil {
		return err
	}
	return to.connection.Write(ctx, &jsonrpc.Request{Method: channelNotification, Params: parameters})
}
