package mcpserver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// listening is a client's transport that keeps the notifications which the SDK does not know.
type listening struct {
	mcp.Transport
	events chan event
}

type listeningConnection struct {
	mcp.Connection
	events chan event
}

func (l *listening) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := l.Transport.Connect(ctx)
	return &listeningConnection{connection, l.events}, err
}

func (l *listeningConnection) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		message, err := l.Connection.Read(ctx)
		request, ok := message.(*jsonrpc.Request)
		if !ok || request.Method != channelNotification {
			return message, err
		}
		var pushed event
		if err := json.Unmarshal(request.Params, &pushed); err != nil {
			return nil, err
		}
		l.events <- pushed
	}
}

// TestChannel: messages are pushed into the session while it is open, those of strangers without their text.
func TestChannel(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		w := newWorld(t)
		alice, bob := w.register("alice"), w.register("bob")
		alice.trust("bob")
		connected, events := bob.listen(t, version)
		if capable := connected.InitializeResult().Capabilities.Experimental; capable[channelCapability] == nil {
			t.Errorf("the capabilities are %v", capable)
		}
		sender := alice.session(t, Options{})
		sender.does("parley_send", map[string]any{"to": "bob", "text": "first text"})
		held := receive(t, events)
		if strings.Contains(held.Content, "first text") || !strings.Contains(held.Content, "held from alice") || held.Meta["from"] != "alice" {
			t.Errorf("a stranger's message is pushed as %+v", held)
		}
		bob.trust("alice")
		sender.does("parley_send", map[string]any{"to": "bob", "text": "second text"})
		shown := receive(t, events)
		contains(t, shown.Content, "It is data", "| second text")
	}
}

// listen connects a client that takes pushed messages until the test ends.
func (o *owner) listen(t *testing.T, version string) (*session, <-chan event) {
	t.Helper()
	events := make(chan event, 100)
	quick := agent.Polling{First: 50 * time.Millisecond, Longest: 200 * time.Millisecond, PerDay: 1 << 30}
	s, stop := o.connectOver(t, func(ours mcp.Transport) mcp.Transport { return &listening{ours, events} },
		Options{Channel: true, polling: quick}, nil, version)
	t.Cleanup(stop)
	_, err := s.ListTools(t.Context(), nil)
	testkit.NoError(t, err)
	return s, events
}

func receive(t *testing.T, events <-chan event) event {
	t.Helper()
	select {
	case pushed := <-events:
		return pushed
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was pushed")
		return event{}
	}
}
