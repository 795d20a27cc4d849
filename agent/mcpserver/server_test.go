package mcpserver

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tiktoken-go/tokenizer"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// maxTokens is what the list of the default tools may cost a model (o200k).
const maxTokens = 2_500

// TestToolList: the default set of tools and the instructions are short, and each tool states what it does.
func TestToolList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.wallet().session(t, Options{})
	list, err := s.ListTools(t.Context(), nil)
	testkit.NoError(t, err)
	if len(list.Tools) != 12 {
		t.Errorf("%d tools, want 12", len(list.Tools))
	}
	text, err := json.Marshal(list.Tools)
	testkit.NoError(t, err)
	codec, err := tokenizer.Get(tokenizer.O200kBase)
	testkit.NoError(t, err)
	tokens, err := codec.Count(string(text))
	if err != nil || tokens > maxTokens {
		t.Errorf("the list of tools has %d tokens (%v), more than %d", tokens, err, maxTokens)
	}
	t.Logf("%d tokens", tokens)
	for _, hint := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
		if stated := strings.Count(string(text), hint); stated != len(list.Tools) {
			t.Errorf("%d of %d tools state %s", stated, len(list.Tools), hint)
		}
	}
	if strings.Contains(string(text), "outputSchema") {
		t.Error("a tool has an output schema")
	}
	if words := len(strings.Fields(Instructions)); words >= 100 {
		t.Errorf("the instructions have %d words, want less than 100", words)
	}
}

// TestEveryOperation: each operation of the contract is of a tool that exists. Tools that cost money are not read-only.
func TestEveryOperation(t *testing.T) {
	t.Parallel()
	contract, err := agent.LoadContract()
	testkit.NoError(t, err)
	for id := range contract {
		if agent.CallerOf(id).Tool == "" {
			t.Errorf("%s is of no tool in agent.Callers", id)
		}
	}
	tools := map[string]tool{}
	for _, one := range allTools {
		tools[one.name] = one
	}
	for _, caller := range agent.Callers {
		one, there := tools[caller.Tool]
		for _, id := range caller.Operations {
			switch {
			case !there:
				t.Errorf("%s makes %s, and is no tool", caller.Tool, id)
			case contract[id].Price > 0 && one.readOnly:
				t.Errorf("%s is read-only, and %s costs money", one.name, id)
			case strings.HasPrefix(id, "delete") && !one.destructive:
				t.Errorf("%s is not destructive, and makes %s", one.name, id)
			}
		}
	}
}

// TestSets: each set has its tools.
func TestSets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.wallet()
	for _, set := range []struct {
		options Options
		count   int
		has     string
		hasNot  string
	}{
		{Options{Tools: ToolsRead}, 6, "parley_inbox", "parley_send"},
		{Options{}, 12, "parley_send", "parley_admin"},
		{Options{Tools: ToolsAll}, 13, "parley_admin", "parley_call"},
		{Options{Tools: ToolsAll, Raw: true}, 14, "parley_call", "parley_nothing"},
	} {
		list, err := o.session(t, set.options).ListTools(t.Context(), nil)
		testkit.NoError(t, err)
		has := func(name string) bool {
			return slices.ContainsFunc(list.Tools, func(one *mcp.Tool) bool { return one.Name == name })
		}
		if len(list.Tools) != set.count || !has(set.has) || has(set.hasNot) {
			t.Errorf("the set %q has %d tools, %s: %t, %s: %t", set.options.Tools, len(list.Tools), set.has, has(set.has), set.hasNot,
				has(set.hasNot))
		}
	}
	for _, wrong := range []Options{{Tools: "some"}, {Tools: ToolsRead, Raw: true}} {
		if _, _, err := newServer(o.Agent, wrong); err == nil {
			t.Errorf("the options %+v are accepted", wrong)
		}
	}
}

// TestResources: the operations and the skill can be read.
func TestResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.wallet().session(t, Options{})
	for uri, part := range map[string]string{operationsResource: "**sendPrivateMessage** (0.005", skillResource: w.URL} {
		resource, err := s.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		testkit.NoError(t, err)
		contains(t, resource.Contents[0].Text, part)
	}
}

// TestNullArguments: arguments that are null are taken as left out, also all of them.
func TestNullArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.register("alice").session(t, Options{})
	contains(t, s.does("parley_status", map[string]any{"service": nil}), "account alice")
	contains(t, s.does("parley_inbox", map[string]any{"last_minutes": 5, "from": nil, "after_message_id": nil, "keep_unread": nil,
		"detailed": nil}), "0 messages")
	result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "parley_status", Arguments: json.RawMessage("null")})
	if err != nil || result.IsError {
		t.Errorf("null for all arguments: %v, %v", result, err)
	}
	if _, result := s.call("parley_send", map[string]any{"to": nil, "text": "hi"}); !result.IsError {
		t.Error("a message was sent to nobody")
	}
}

// TestNobodyAndMyself: what is counted for a refused call is said, and no call is made about a conversation with myself.
func TestNobodyAndMyself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.register("alice").session(t, Options{})
	before := w.Revenue()
	contains(t, s.fails("agent_not_found", "parley_lookup", map[string]any{"name": "nobody"}), "(0.001 reserved for refused calls) · left")
	contains(t, s.fails("invalid_arguments", "parley_read", map[string]any{"conversation": "alice"}), "this account itself", "name me")
	s.fails("invalid_arguments", "parley_send", map[string]any{"to": "alice", "text": "hello"})
	if paid := w.Revenue() - before; paid != 0 {
		t.Errorf("%d was paid", paid)
	}
}
