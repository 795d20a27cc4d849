package mcpserver

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestOpen: a call whose response is lost is answered in time, finishes in the background, and is paid once.
func TestOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.register("bob")
	alice.trust("bob")
	var lost atomic.Int32
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		lost.Add(1)
		agenttest.LoseResponse(rw, r, next)
	})
	s := alice.session(t, Options{patience: 2 * time.Second})
	before, started := w.Revenue(), time.Now()
	contains(t, s.fails("open", "parley_send", map[string]any{"to": "bob", "text": "once"}), "finishing in the background",
		"not charged twice")
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the answer took %s", took)
	}
	contains(t, s.does("parley_status", nil), "parley_send (sendPrivateMessage)", "'content':'once'")
	w.Answer(nil)
	alice.finishes()
	contains(t, s.does("parley_send", map[string]any{"to": "bob", "text": "once"}), "sent to bob", "charged once", "paid 0.005 USD")
	if paid := w.Revenue() - before; paid != 5000 || lost.Load() == 0 {
		t.Errorf("%d was paid, %d responses were lost", paid, lost.Load())
	}
}

// finishes waits until no payment of an agent is open.
func (o *owner) finishes() {
	o.w.T.Helper()
	if !testkit.Eventually(30*time.Second, func() bool {
		open, err := o.Ledger().Open()
		return err == nil && len(open) == 0
	}) {
		o.w.T.Fatal("a payment stays open")
	}
}

// TestFinishedAtStart: a new process finishes what an earlier one left open, without being asked.
func TestFinishedAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.Answer(agenttest.LoseResponse)
	first, stop := alice.connectWithStop(t, Options{patience: time.Second}, nil, "")
	first.fails("open", "parley_inbox", nil)
	stop()
	w.Answer(nil)
	alice.session(t, Options{})
	alice.finishes()
}

// TestSameCallTwice: of two equal calls at the same time one is paid, and both get the response.
func TestSameCallTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	w.register("bob")
	alice.trust("bob")
	s := alice.session(t, Options{})
	before := w.Revenue()
	both := s.doesTwice(w, "parley_send", map[string]any{"to": "bob", "text": "once"})
	if paid := w.Revenue() - before; paid != 5000 || strings.Count(both, "charged once") != 1 ||
		strings.Count(both, "paid 0.00 USD") != 1 {
		t.Errorf("%d was paid:\n%s", paid, both)
	}
}

// failing is a transport of a server that cannot write results of tools.
type failing struct{ mcp.Transport }

type failingConnection struct{ mcp.Connection }

func (f failing) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := f.Transport.Connect(ctx)
	return failingConnection{connection}, err
}

func (f failingConnection) Write(ctx context.Context, message jsonrpc.Message) error {
	if response, ok := message.(*jsonrpc.Response); ok && strings.Contains(string(response.Result), "paid 0.0") {
		return io.ErrClosedPipe
	}
	return f.Connection.Write(ctx, message)
}

// TestUnwritten: a result that was paid and not written, because of a signal or an error, comes again, free: messages too.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	for _, signal := range []bool{true, false} {
		w := newWorld(t)
		alice, bob := w.register("alice"), w.register("bob")
		alice.trust("bob")
		bob.trust("alice")
		bob.session(t, Options{}).does("parley_send", map[string]any{"to": "alice", "text": "for alice"})
		before := w.Revenue()
		for _, one := range []struct {
			tool, shown string
			arguments   map[string]any
		}{
			{"parley_send", "sent to bob", map[string]any{"to": "bob", "text": "once"}}, {"parley_inbox", "| for alice", nil},
		} {
			ours, theirs := mcp.NewInMemoryTransports()
			ctx, stop := context.WithCancel(t.Context())
			w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				response := httptest.NewRecorder()
				next.ServeHTTP(response, r)
				if signal { // before the response arrives
					stop()
				}
				maps.Copy(rw.Header(), response.Header())
				rw.WriteHeader(response.Code)
				_, _ = rw.Write(response.Body.Bytes())
			})
			transport := mcp.Transport(theirs)
			if !signal {
				transport = failing{theirs}
			}
			served := make(chan error, 1)
			go func() { served <- Serve(ctx, alice.Agent, transport, Options{}) }()
			client, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), ours, nil)
			testkit.NoError(t, err)
			if result, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: one.tool, Arguments: one.arguments}); err == nil {
				t.Errorf("%s was answered: %v", one.tool, result.Content)
			}
			stop()
			if err := <-served; signal && err != nil {
				t.Error(err)
			}
			w.Answer(nil)
			s := alice.session(t, Options{})
			contains(t, s.does(one.tool, one.arguments), one.shown, "charged once")
		}
		if paid := w.Revenue() - before; paid != 6000 {
			t.Errorf("signal %t: %d was paid for two calls", signal, paid)
		}
	}
}
