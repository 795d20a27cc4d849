package mcpserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"unicode/utf8"

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
	hears      atomic.Bool // the client has the capability for channels
	cancelled  sync.Map    // requests that the client gave up
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
		w.session.note(request)
		request.Extra = &mcp.RequestExtra{Header: http.Header{requestHeader: {requestName(request.ID)}}}
		if request.Method != "initialize" && request.Method != "server/discover" {
			w.session.once.Do(func() { close(w.session.ready) })
		}
	}
	return message, err
}

// note keeps what a request says about the client, which is in its first request or in each, and what it gives up.
func (s *watching) note(request *jsonrpc.Request) {
	var said struct {
		Capabilities mcp.ClientCapabilities `json:"capabilities"`
		Meta         struct {
			Capabilities mcp.ClientCapabilities `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
		RequestID any `json:"requestId"`
	}
	_ = json.Unmarshal(request.Params, &said) // others have none of these
	_, first := said.Capabilities.Experimental[channelCapability]
	_, each := said.Meta.Capabilities.Experimental[channelCapability]
	if first || each {
		s.hears.Store(true)
	}
	if id, err := jsonrpc.MakeID(said.RequestID); err == nil && request.Method == "notifications/cancelled" {
		s.cancelled.Store(requestName(id), true)
	}
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
	stored, _ := s.unseen.LoadAndDelete(requestName(response.ID))
	run, ok := stored.(*agent.Run)
	if ok {
		defer run.Release()
	}
	if _, cancelled := w.session.cancelled.LoadAndDelete(requestName(response.ID)); cancelled {
		return nil // its result comes again with the same call
	}
	if err := w.Connection.Write(ctx, message); err != nil || !ok {
		return err
	}
	if err := run.Seen(); err != nil {
		s.Log.Error("note that a response was seen", "error", err)
	}
	return nil
}

// written waits until results that the client may have read count as seen: the same call made again is a new one.
func (s *parleyServer) written() {
	s.writing.RLock()
	defer s.writing.RUnlock()
}

// maxLine is the longest line of a client.
const maxLine = 4 << 20

// Stdio returns a transport over standard input and output on which a line that is no message is answered with an error, and the session
// goes on.
func Stdio() mcp.Transport { return over(os.Stdin, os.Stdout) }

// over returns the transport of a reader and a writer.
func over(from io.Reader, to io.Writer) mcp.Transport {
	out := &lockedWriter{to: to}
	read, write := io.Pipe()
	go func() {
		lines := bufio.NewReader(from)
		for {
			line, err := lines.ReadBytes('\n')
			if text := bytes.TrimSpace(line); len(text) > 0 {
				if problem := problemOf(text); problem == "" {
					_, _ = write.Write(append(text, '\n')) // fails when the session has ended
				} else if _, failed := io.WriteString(out, problem+"\n"); err == nil {
					err = failed
				}
			}
			if err != nil {
				_ = write.CloseWithError(err) // returns no error
				return
			}
		}
	}()
	return &mcp.IOTransport{Reader: read, Writer: out, MaxLineLength: maxLine + 2}
}

// problemOf returns the response to a line that is no message, or "".
func problemOf(line []byte) string {
	const response = `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`
	if len(line) > maxLine || !json.Valid(line) {
		return fmt.Sprintf(response, "null", jsonrpc.CodeParseError, "the line is not JSON, or longer than 4 MiB")
	}
	message, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		return fmt.Sprintf(response, "null", jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC 2.0 message")
	}
	if request, ok := message.(*jsonrpc.Request); ok && !utf8.Valid(line) { // a decoder would repair it, and pay for that
		id, _ := json.Marshal(request.ID.Raw()) // a number, a text or null
		return fmt.Sprintf(response, id, jsonrpc.CodeInvalidParams, "the line has bytes that are not UTF-8; nothing was done")
	}
	return ""
}

// lockedWriter writes whole lines, one at a time.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(line)
}

func (*lockedWriter) Close() error { return nil }
