package mcpserver

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// versions are a version of the protocol with and one without requests from the server to the client.
var versions = []string{"", "2025-11-25"}

// human answers forms, and keeps the questions.
type human struct {
	action    string
	allow     bool
	mu        sync.Mutex
	questions []string
}

func (h *human) options() *mcp.ClientOptions {
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, request *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.questions = append(h.questions, request.Params.Message)
		return &mcp.ElicitResult{Action: h.action, Content: map[string]any{"allow": h.allow}}, nil
	}}
}

// TestApprovalByForm: a call above the limit is asked for in a form, and made once if the human allows it.
func TestApprovalByForm(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		w := newWorld(t)
		alice := w.register("alice")
		create := map[string]any{"kind": "group", "name": "team"}
		before := w.Revenue()

		no := &human{action: "decline"}
		alice.connect(t, Options{}, no.options(), version).fails("declined", "parley_create", create)
		unticked := &human{action: "accept"}
		alice.connect(t, Options{}, unticked.options(), version).fails("declined", "parley_create", create)
		closed := &human{action: "cancel"}
		text := alice.connect(t, Options{}, closed.options(), version).fails("approval_needed", "parley_create", create)
		contains(t, text, "parley wallet approve ")
		if w.Revenue() != before {
			t.Error("something was paid although the human did not allow it")
		}
		yes := &human{action: "accept", allow: true}
		s := alice.connect(t, Options{}, yes.options(), version)
		contains(t, s.does("parley_create", create), "group team created", "paid 0.15 USD")
		if len(yes.questions) != 1 || w.Revenue()-before != 150_000 {
			t.Fatalf("the human was asked %q, %d was paid", yes.questions, w.Revenue()-before)
		}
		contains(t, yes.questions[0], "create the group team", "0.15 USD", "today's 1.00 USD")
		// Equal calls at the same time, both allowed, are one.
		contains(t, s.doesTwice(w, "parley_create", map[string]any{"kind": "group", "name": "both"}), "paid 0.15 USD", "paid 0.00 USD")
		yes.questions = yes.questions[:1]
		if s.does("parley_create", create); len(yes.questions) != 2 {
			t.Errorf("the second group was created after %d questions", len(yes.questions))
		}
	}
}

// TestFormsThatFail: a client that says that it has forms, and then cannot show one, gets the command.
func TestFormsThatFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	broken := &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return nil, errors.New("no display")
	}}
	text := alice.connect(t, Options{}, broken, "2025-11-25").fails("approval_needed", "parley_create",
		map[string]any{"kind": "group", "name": "team"})
	contains(t, text, "parley wallet approve ", "paid 0.00 USD")
}

// TestApprovalByCommand: without forms, the result names the command; after it the same call works once. An answer to a question that was
// not asked approves nothing.
func TestApprovalByCommand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.register("alice")
	s := alice.session(t, Options{})
	create := map[string]any{"kind": "group", "name": "team"}
	text := s.fails("approval_needed", "parley_create", create)
	_, rest, found := strings.Cut(text, "parley wallet approve ")
	if !found {
		t.Fatalf("no command in %s", text)
	}
	id := strings.Fields(rest)[0]
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{
		Name: "parley_create", Arguments: create,
		InputResponses: mcp.InputResponseMap{"approve-" + id: &mcp.ElicitResult{Action: "accept", Content: map[string]any{"allow": true}}},
	})
	if err != nil || !result.IsError {
		t.Errorf("a made-up answer was taken: %v, %v", result, err)
	}
	if _, err := alice.Ledger().Approve(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	s.does("parley_create", create)
	s.fails("approval_needed", "parley_create", create)
}

// TestAccountByForm: a new wallet registers after its human allowed the price.
func TestAccountByForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, create := w.wallet(), map[string]any{"kind": "account", "name": "alice"}
	contains(t, alice.session(t, Options{}).fails("approval_needed", "parley_create", create), "parley init --username alice", "paid 0.00 USD")
	no := &human{action: "decline"}
	contains(t, alice.connect(t, Options{}, no.options(), "").fails("declined", "parley_create", create), "paid 0.00 USD")
	if w.Revenue() != 0 {
		t.Errorf("%d was paid before the human allowed the account", w.Revenue())
	}
	yes := &human{action: "accept", allow: true}
	s := alice.connect(t, Options{}, yes.options(), "")
	contains(t, s.does("parley_create", create), "account alice created", "paid 1.001 USD")
	if w.Revenue() != 1_001_000 || len(yes.questions) != 1 {
		t.Errorf("%d was paid after the questions %q", w.Revenue(), yes.questions)
	}
	contains(t, yes.questions[0], "create the account alice", "0.99 USD")
}

// TestPaidBeforeQuestion: what a call paid before it asked the human is in its result, whatever the answer is.
func TestPaidBeforeQuestion(t *testing.T) {
	t.Parallel()
	for _, version := range versions {
		for _, allow := range []bool{true, false} {
			w := newWorld(t)
			alice := w.register("alice")
			w.register("bob")
			answers := &human{action: "accept", allow: allow}
			s := alice.connect(t, Options{}, answers.options(), version)
			text, _ := s.call("parley_contacts", map[string]any{"action": "trust", "name": "bob"})
			if contains(t, text, "paid 0.001 USD"); len(answers.questions) != 1 {
				t.Errorf("the human was asked %q", answers.questions)
			}
		}
	}
}

// TestTrust: only the human can trust a stranger, whatever the model does.
func TestTrust(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.register("alice"), w.register("bob")
	alice.trust("bob")
	alice.session(t, Options{}).does("parley_send", map[string]any{"to": "bob", "text": "hello bob"})
	s := bob.session(t, Options{Tools: ToolsAll})
	s.does("parley_inbox", nil)
	contains(t, s.fails("approval_needed", "parley_contacts", map[string]any{"action": "trust", "name": "alice"}),
		"parley contacts trust agent_")
	s.does("parley_contacts", map[string]any{"action": "hold", "name": "alice"})
	s.fails("failed", "parley_contacts", map[string]any{"action": "forget", "name": "alice"})
	if text := s.does("parley_inbox", map[string]any{"last_minutes": 5}); strings.Contains(text, "hello bob") {
		t.Errorf("a stranger's text is shown: %s", text)
	}
	yes := &human{action: "accept", allow: true}
	s = bob.connect(t, Options{Tools: ToolsAll}, yes.options(), "")
	contains(t, s.does("parley_admin", map[string]any{"action": "profile", "description": "I sail."}), "profile changed")
	contains(t, yes.questions[0], "show everybody", "I sail.")
	contains(t, s.does("parley_contacts", map[string]any{"action": "trust", "name": "alice"}), "alice is trusted")
	contains(t, s.does("parley_inbox", map[string]any{"last_minutes": 5}), "| hello bob")
	s.does("parley_contacts", map[string]any{"action": "hold", "name": "alice"})
	if text := s.does("parley_inbox", map[string]any{"last_minutes": 5}); strings.Contains(text, "hello bob") {
		t.Errorf("the text of somebody who is held is shown: %s", text)
	}
	contains(t, s.fails("unknown_recipient", "parley_send", map[string]any{"to": "alice", "text": "hello"}), "alice is held")
	s = bob.connect(t, Options{Anyone: true}, yes.options(), "")
	contains(t, s.fails("unknown_recipient", "parley_send", map[string]any{"to": "alice", "text": "hello"}), "alice is held")
}
