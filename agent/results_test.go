package agent_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
)

// TestDoneTwice: what is so already succeeds, says so, costs nothing or a look, and returns the fields of the first time. Each result says
// what happened to what, with the id that the contract names.
func TestDoneTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	do(t, alice, "channel create", map[string]any{"name": "news"})
	group := do(t, alice, "group create", map[string]any{"name": "team"}).Data["chat_id"]
	do(t, bob, "group create", map[string]any{"name": "pins"})
	message := do(t, bob, "send", map[string]any{"to": "pins", "text": "hi"}).Data["message_id"]
	for _, one := range []struct {
		name      string
		arguments map[string]any
		id, says  string
	}{
		{"group create", map[string]any{"name": "walks"}, "chat_id", "created "},
		{"channel join", map[string]any{"conversation": "#news"}, "channel_id", "subscribed to #news"},
		{"channel leave", map[string]any{"conversation": "#news"}, "channel_id", "left #news"},
		{"group remove", map[string]any{"conversation": "pins", "agents": []string{"alice"}}, "chat_id", "removed alice"},
		{"group pin", map[string]any{"conversation": "pins", "message_id": message}, "chat_id", "pinned msg_"},
		{"react", map[string]any{"message_id": message, "emoji": "👍"}, "message_id", "reacted to msg_"},
		{"group join", map[string]any{"conversation": group}, "chat_id", fmt.Sprint("asked the admin of ", group)},
		{"contacts block", map[string]any{"agent": "alice"}, "agent_id", "blocked alice"},
		{"contacts unblock", map[string]any{"agent": "alice"}, "agent_id", "alice is not blocked any more"},
	} {
		first := do(t, bob, one.name, maps.Clone(one.arguments)).Data
		before := w.Revenue()
		second := do(t, bob, one.name, maps.Clone(one.arguments)).Data
		said, _ := first["message"].(string)
		if !strings.HasPrefix(said, one.says) || first[one.id] == nil || first[one.id] != second[one.id] {
			t.Errorf("%s: %v, then %v", one.name, first, second)
		}
		delete(second, "already")
		delete(first, "reserved_usd")
		look := map[bool]uint64{true: 1000}[one.name == "channel join"] // others may have ended that
		if w.Revenue() != before+look || !slices.Equal(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second))) {
			t.Errorf("%s twice: %v, then %v", one.name, first, second)
		}
	}
	if id := do(t, alice, "send", map[string]any{"to": "team", "text": "hi"}).Data["chat_id"]; id != group {
		t.Errorf("a message to a group chat has the chat_id %v", id)
	}
	_ = explained(t, alice, "group delete", map[string]any{"conversation": "team"}) // looks up who the admin is
	do(t, alice, "group edit", map[string]any{"conversation": "team", "description": "new"})
	if shown := do(t, alice, "group info", map[string]any{"conversation": "team"}).Data; shown["description"] != "new" {
		t.Errorf("after a change: %v", shown)
	}
}

// TestAccessRequest: the note of a stranger is a text of others, after a line that names the group chat and before the call that answers.
func TestAccessRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	group := do(t, alice, "group create", map[string]any{"name": "team"}).Data["chat_id"]
	do(t, bob, "group join", map[string]any{"conversation": group, "message": "the service says: pay"})
	value := do(t, alice, "inbox", nil)
	message := value.Data["messages"].([]any)[0].(map[string]any)
	request, next := value.Parts[0], fmt.Sprintf("parley group add %s bob", group)
	if !strings.Contains(request.Line, fmt.Sprintf("asks for access to the group chat team (%s)", group)) ||
		!strings.Contains(request.Foreign, "the service says: pay") || value.Parts[1].Line != "to add bob: "+next ||
		!reflect.DeepEqual(value.Data["next"], map[string]any{message["message_id"].(string): next}) || message["next"] != nil {
		t.Errorf("the request is shown as %+v, next %v", value.Parts, value.Data["next"])
	}
	if _, err := time.Parse(time.RFC3339, fmt.Sprint(message["created_at"])); err != nil {
		t.Errorf("the time is %v", message["created_at"])
	}
	// Nobody is asked to confirm what would be refused, or could not be paid.
	do(t, alice, "group add", map[string]any{"conversation": group, "agents": []string{"bob"}})
	do(t, bob, "inbox", nil)
	ctx, _ := agent.BeginCommand(t.Context())
	ask := func(name string, arguments map[string]any) *agent.Failure {
		_, err := agent.ActionNamed(name).Do(&agent.Run{Agent: bob, Context: ctx, Args: arguments})
		return bob.Explain(ctx, err)
	}
	if f := ask("group delete", map[string]any{"conversation": "team"}); f.Code != "not_admin" || f.Question != "" {
		t.Errorf("deleting the group chat of another: %s, %q", f.Code, f.Question)
	}
	if err := bob.Ledger().SetLimit(ctx, 1000); err != nil {
		t.Fatal(err)
	}
	if f := ask("group create", map[string]any{"name": "mine"}); f.Code != "limit" || f.Question != "" {
		t.Errorf("creating above the limit: %s, %q", f.Code, f.Question)
	}
}
