package mcpserver

import (
	"strings"
	"testing"
)

// TestAdvice: errors of the service name tools and the human's commands, in the wallet's folder, in place of calls of the contract. A tool
// that the server does not have is not named.
func TestAdvice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.register("alice"), w.register("bob")
	raise(t, alice)
	a, b := alice.session(t, Options{Tools: ToolsAll}), bob.session(t, Options{Home: "/my wallet"})
	group := word(t, a.does("parley_create", map[string]any{"kind": "group", "name": "team"}), "chat_")
	channel := word(t, a.does("parley_create", map[string]any{"kind": "channel", "name": "news"}), "channel_")

	reader := bob.session(t, Options{Tools: ToolsRead})
	contains(t, reader.fails("chat_not_found", "parley_read", map[string]any{"conversation": "alice"}),
		"it begins with the first message.\npaid")
	contains(t, b.fails("not_member", "parley_read", map[string]any{"conversation": group}), "request access with parley_join")
	contains(t, b.fails("not_subscriber", "parley_read", map[string]any{"conversation": channel}), "subscribe with parley_join")
	contains(t, a.fails("admin_alone", "parley_leave", map[string]any{"conversation": group}), "instead with parley_admin")
	contains(t, alice.session(t, Options{}).fails("admin_alone", "parley_leave", map[string]any{"conversation": group}),
		"instead with the human's command parley group delete")
	contains(t, b.does("parley_join", map[string]any{"conversation": group}), "asked the admin", "paid 0.005 USD")
	contains(t, a.does("parley_inbox", nil), "held from bob")
	alice.trust("bob")
	contains(t, a.does("parley_admin", map[string]any{"action": "add", "conversation": group, "agents": []string{"bob"}}), "add done")
	contains(t, a.fails("successor_required", "parley_leave", map[string]any{"conversation": group}), "set successor to")
	contains(t, b.fails("chat_not_found", "parley_join", map[string]any{"conversation": "news"}), "no group chat", "paid 0.00 USD")

	contains(t, b.fails("approval_needed", "parley_contacts", map[string]any{"action": "trust", "name": "alice"}),
		"parley contacts trust agent_", ` --home "/my wallet".`)
	if text := reader.does("parley_prices", nil); strings.Contains(text, "parley_send") {
		t.Errorf("a tool that the server lacks is named: %s", text)
	}
}
