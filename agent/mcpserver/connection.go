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
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// watching is a transport whose connection tells which results were written.
type watching struct {
	mcp.Transport
	server    *parleyServer
	ctx       context.Context // the session ends with it
	cancelled sync.Map        // requests that the client gave up
}

func (s *watching) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := s.Transport.Connect(ctx)
	return &watched{connection, s}, err
}

type watched struct {
	mcp.Connection
	session *watching
}

// requestHeader names the request in what the SDK passes to the handler.
const requestHeader = "Request"

func requestName(id jsonrpc.ID) string { return fmt.Sprintf("%T %[1]v", id.Raw()) }

func nameOf(request *mcp.CallToolRequest) string { return request.Extra.Header.Get(requestHeader) }

// Read implements [mcp.Connection]. A signal ends the calls in flight as the end of the input does.
func (w *watched) Read(context.Context) (jsonrpc.Message, error) {
	message, err := w.Connection.Read(w.session.ctx)
	if request, ok := message.(*jsonrpc.Request); ok {
		request.Extra = &mcp.RequestExtra{Header: http.Header{requestHeader: {requestName(request.ID)}}}
		var said struct {
			RequestID any `json:"requestId"`
		}
		_ = json.Unmarshal(request.Params, &said) // others have none
		if id, wrong := jsonrpc.MakeID(said.RequestID); wrong == nil && request.Method == "notifications/cancelled" {
			w.session.cancelled.Store(requestName(id), true)
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
	_ = run.Seen() // else the same call returns it again
	return nil
}

// written waits until results that the client may have read count as seen: the same call made again is a new one.
func (s *parleyServer) written() {
	s.writing.RLock()
	defer s.writing.RUnlock()
}

const maxLine = 4 << 20

// Stdio returns a transport over standard input and output on which a line that is no message is answered with an error, and the session
// goes on.
func Stdio() mcp.Transport { return over(os.Stdin, os.Stdout) }

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
