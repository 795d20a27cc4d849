package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// world is a server that takes play money.
type world struct{ *agenttest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{agenttest.New(t)}
}

// owner is an agent with its wallet, as the human who owns it sees it.
type owner struct {
	*agent.Agent
	w         *world
	folder    string
	walletKey string
}

// wallet returns the agent of a new wallet that has agreed to the server's terms.
func (w *world) wallet() *owner { return w.walletWith(100 * testkit.Dollar) }

func (w *world) walletWith(amount uint64) *owner {
	w.T.Helper()
	key := w.Wallet(amount)
	o := &owner{w: w, folder: w.T.TempDir(), walletKey: fmt.Sprintf("%x", evm.FromECDSA(key))}
	o.Agent = w.Open(o.folder, x402.NewKeySigner(key), nil)
	w.Agree(o.Agent)
	return o
}

// register returns the agent of a new account. Its human has approved the price.
func (w *world) register(name string) *owner { return w.registerWith(name, 100*testkit.Dollar) }

func (w *world) registerWith(name string, amount uint64) *owner {
	w.T.Helper()
	o := w.walletWith(amount)
	if _, err := o.RegisterApproved(w.T.Context(), name, "I am "+name+"."); err != nil {
		w.T.Fatal(err)
	}
	return o
}

// trust lets the model read what somebody writes.
func (o *owner) trust(name string) {
	o.w.T.Helper()
	found, err := o.Resolve(o.w.T.Context(), name)
	if err == nil {
		err = o.ChangeContact(o.w.T.Context(), found.ID, func(c *agent.Contact) { c.Trusted = true })
	}
	testkit.NoError(o.w.T, err)
}

// secrets returns everything that must never be in a result or a log.
func (o *owner) secrets() []string {
	o.w.T.Helper()
	content, err := os.ReadFile(filepath.Join(o.folder, "secrets.json"))
	testkit.NoError(o.w.T, err)
	var kept map[string]string
	testkit.NoError(o.w.T, json.Unmarshal(content, &kept))
	all := []string{o.walletKey}
	for _, secret := range kept {
		all = append(all, secret)
	}
	return all
}

// session is a client's session with the server of an agent.
type session struct {
	*mcp.ClientSession
	t *testing.T
	// all is everything that the client received from tools.
	mu  sync.Mutex
	all strings.Builder
}

// connect connects a client, with a version of the protocol or the newest one.
func (o *owner) connect(t *testing.T, options Options, client *mcp.ClientOptions, version string) *session {
	t.Helper()
	s, stop := o.connectWithStop(t, options, client, version)
	t.Cleanup(stop)
	return s
}

func (o *owner) connectWithStop(t *testing.T, options Options, client *mcp.ClientOptions, version string) (s *session, stop func()) {
	t.Helper()
	return o.connectOver(t, func(ours mcp.Transport) mcp.Transport { return ours }, options, client, version)
}

// connectOver connects a client whose transport is changed.
func (o *owner) connectOver(
	t *testing.T, change func(mcp.Transport) mcp.Transport, options Options, client *mcp.ClientOptions, version string,
) (s *session, stop func()) {
	t.Helper()
	ours, theirs := mcp.NewInMemoryTransports()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, o.Agent, theirs, options) }()
	connected, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, client).Connect(
		ctx, change(ours), &mcp.ClientSessionOptions{ProtocolVersion: version})
	testkit.NoError(t, err)
	return &session{ClientSession: connected, t: t}, func() {
		_ = connected.Close()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}
}

func (o *owner) session(t *testing.T, options Options) *session {
	t.Helper()
	return o.connect(t, options, nil, "")
}

// call calls a tool and returns the text and the result.
func (s *session) call(tool string, arguments map[string]any) (string, *mcp.CallToolResult) {
	s.t.Helper()
	result, err := s.CallTool(s.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		s.t.Fatalf("%s: %v", tool, err)
	}
	whole, err := json.Marshal(result)
	testkit.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(whole)
	if len(result.Content) != 1 {
		s.t.Fatalf("%s returned %d contents", tool, len(result.Content))
	}
	return result.Content[0].(*mcp.TextContent).Text, result
}

// does calls a tool that must succeed, and returns its text.
func (s *session) does(tool string, arguments map[string]any) string {
	s.t.Helper()
	text, result := s.call(tool, arguments)
	if result.IsError {
		s.t.Fatalf("%s %v: %s", tool, arguments, text)
	}
	return text
}

// doesTwice makes two equal calls at the same time and returns their texts: the first one waits for its payment until the other has begun.
func (s *session) doesTwice(w *world, tool string, arguments map[string]any) string {
	s.t.Helper()
	paying, proceed, texts := make(chan struct{}, 2), make(chan struct{}), make(chan string, 2)
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		paying <- struct{}{}
		<-proceed
		next.ServeHTTP(rw, r)
	})
	for range 2 {
		go func() { texts <- s.does(tool, arguments) }()
	}
	<-paying
	time.Sleep(2 * time.Second)
	close(proceed)
	both := <-texts + <-texts
	w.Answer(nil)
	return both
}

// fails calls a tool that must return an error with a code, and returns its text.
func (s *session) fails(code, tool string, arguments map[string]any) string {
	s.t.Helper()
	text, result := s.call(tool, arguments)
	facts, _ := result.StructuredContent.(map[string]any)
	if !result.IsError || facts["error"] != code {
		s.t.Fatalf("%s %v returned %q, want the error %s", tool, arguments, text, code)
	}
	return text
}

// contains fails if a text has not a part.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}
