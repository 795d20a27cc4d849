package mcpserver

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// The capability and the notification with which a server pushes into open sessions of clients that support channels.
const (
	channelCapability   = "claude/channel"
	channelNotification = "notifications/claude/channel"
)

// pushing is a transport on which notifications can be sent that the SDK does not know.
type pushing struct {
	mcp.Transport
	connection mcp.Connection
	ready      chan struct{} // closed when the session has begun
	once       sync.Once
}

// Connect implements [mcp.Transport].
func (p *pushing) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := p.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	p.connection = connection
	return &watched{connection, p}, nil
}

// watched is a connection that notes when the session has begun: nothing may be sent to the client before.
type watched struct {
	mcp.Connection
	pushing *pushing
}

// Read implements [mcp.Connection].
func (w *watched) Read(ctx context.Context) (jsonrpc.Message, error) {
	message, err := w.Connection.Read(ctx)
	if request, ok := message.(*jsonrpc.Request); ok && request.Method != "initialize" && request.Method != "server/discover" {
		w.pushing.once.Do(func() { close(w.pushing.ready) })
	}
	return message, err
}

// event is what is pushed.
type event struct {
	Content string            `json:"content"`
	Meta    map[string]string `json:"meta"`
}

// retryFollowing is the pause after an error that following does not survive, such as a wallet without an account.
const retryFollowing = time.Minute

// push follows the inbox and pushes what comes, until ctx ends. It pays within the limits for fetching.
func (s *parleyServer) push(ctx context.Context, to *pushing) {
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
func (s *parleyServer) pushInbox(ctx context.Context, to *pushing, page client.UnreadPage) error {
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
