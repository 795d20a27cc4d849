package mcpserver

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// watching is a transport whose connection tells when the session has begun and which results were written.
type watching struct {
	mcp.Transport
	server     *parleyServer
	ctx        context.Context // the session ends with it
	connection mcp.Connection
	ready      chan struct{} // closed when the session has begun
	once       sync.Once
}

// Connect implements [mcp.Transport].
func (s *watching) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := s.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s.connection = connection
	return &watched{connection, s}, nil
}

// watched is the connection of a session.
type watched struct {
	mcp.Connection
	session *watching
}

// requestHeader names the request in what the SDK passes to the handler.
const requestHeader = "Request"

func requestName(id jsonrpc.ID) string { return fmt.Sprintf("%T %[1]v", id.Raw()) }

// Read implements [mcp.Connection]. A signal ends the calls in flight as the end of the input does. Nothing may be sent to the client
// before the first request after the handshake.
func (w *watched) Read(context.Context) (jsonrpc.Message, error) {
	message, err := w.Connection.Read(w.session.ctx)
	if request, ok := message.(*jsonrpc.Request); ok {
		request.Extra = &mcp.RequestExtra{Header: http.Header{requestHeader: {requestName(request.ID)}}}
		if request.Method != "initialize" && request.Method != "server/discover" {
			w.session.once.Do(func() { close(w.session.ready) })
		}
	}
	return message, err
}

// Write implements [mcp.Connection]. Responses of the service were seen once the result that has them is written. Until then, also in the
// next process, the same call returns them again.
func (w *watched) Write(ctx context.Context, message jsonrpc.Message) error {
	response, ok := message.(*jsonrpc.Response)
	if !ok {
		return w.Connection.Write(ctx, message)
	}
	s := w.session.server
	s.writing.Lock()
	defer s.writing.Unlock()
	err := w.Connection.Write(ctx, message)
	results, _ := s.unseen.LoadAndDelete(requestName(response.ID))
	if err != nil || results == nil {
		return err
	}
	for _, result := range results.([]*agent.Result) { //nolint:forcetypeassert // nothing else is stored
		if err := s.agent.Seen(context.WithoutCancel(ctx), result); err != nil {
			s.Log.Error("note that a response was seen", "error", err)
		}
	}
	return nil
}

// written waits until results that the client may have read count as seen: the same call made again is a new one.
func (s *parleyServer) written() {
	s.writing.RLock()
	defer s.writing.RUnlock()
}
