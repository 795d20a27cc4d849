package agent_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// explained is the error of an action as the program tells it.
func explained(t *testing.T, a *agent.Agent, name string, arguments map[string]any) *agent.Failure {
	t.Helper()
	ctx, _ := agent.BeginCommand(t.Context())
	_, err := agent.ActionNamed(name).Do(&agent.Run{Agent: a, Context: ctx, Args: maps.Clone(arguments)})
	if err == nil {
		t.Fatalf("%s %v succeeded", name, arguments)
	}
	return a.Explain(ctx, err)
}

// TestErrorsInWordsOfTheFace: errors name commands and parameters of the table, not operations and fields of the contract, and the command
// that helps has the caller's own values.
func TestErrorsInWordsOfTheFace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	group := do(t, alice, "group create", map[string]any{"name": "team", "members": []string{"bob"}}).Data["chat_id"]
	do(t, alice, "channel create", map[string]any{"name": "news"})
	do(t, bob, "inbox", nil)
	do(t, bob, "contacts block", map[string]any{"agent": "alice"})
	const message = "msg_01k70t94aqeembse7n65ptksh0"
	for _, one := range []struct {
		of                  *agent.Agent
		name                string
		arguments           map[string]any
		code, message, next string
	}{
		{bob, "group remove", map[string]any{"conversation": "team", "agents": []string{"alice"}}, "not_admin",
			"only the admin can do this; parley group info and parley channel info return who that is", ""},
		{bob, "send", map[string]any{"to": "alice", "text": "hi"}, "blocked", "unblock it first with parley contacts unblock", ""},
		{bob, "send", map[string]any{"to": "bob", "text": "hi"}, "usage", "this is your own account", ""},
		{bob, "send", map[string]any{"to": group, "text": "hi", "reply_to": message}, "message_not_found", "--reply-to is not the id", ""},
		{bob, "send", map[string]any{"to": "alice", "text": "hi", "reply_to": "msg_x"}, "usage", "--reply-to: it must have the form of", ""},
		{bob, "send", map[string]any{"to": "chat_01k70t94aqeembse7", "text": "hi"}, "usage", "is no id", ""},
		{alice, "send", map[string]any{"to": "news", "text": "hi"}, "agent_not_found", "there is a channel, write '#news'", ""},
		{bob, "send", map[string]any{"to": "party", "text": "hi"}, "agent_not_found", "known after parley inbox", "find party --kind agents"},
		{alice, "group leave", map[string]any{"conversation": "team"}, "successor_required", "set --successor to another", ""},
		{alice, "profile edit", map[string]any{}, "usage", "nothing to change", ""},
		{alice, "group edit", map[string]any{"conversation": "team", "name": "a\nb"}, "usage", "--name: it has a control character", ""},
		{alice, "read", map[string]any{"conversation": "bob", "grep": "x", "find": "y"}, "usage", "--grep does not go with --find", ""},
		{alice, "send", map[string]any{"to": "", "text": "hi"}, "usage", "<to> is empty", ""},
	} {
		before := w.Revenue()
		f := explained(t, one.of, one.name, one.arguments)
		if f.Code != one.code || !strings.Contains(f.Message, one.message) || f.Next != one.next || w.Revenue() != before {
			t.Errorf("%s %v: %s: %s; next %q; %d was paid; want %s, %q, %q", one.name, one.arguments, f.Code, f.Message, f.Next,
				w.Revenue()-before, one.code, one.message, one.next)
		}
	}
	before := w.Revenue()
	for range 2 {
		_ = explained(t, bob, "channel join", map[string]any{"conversation": "nosuch"})
	}
	if paid := w.Revenue() - before; paid != 5000 {
		t.Errorf("%d was paid for looking up a channel twice that does not exist", paid)
	}
}

// TestReservedIsShown: what a refused call holds of the limit is reserved, not spent, and a new API key is spent.
func TestReservedIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	shown := func() (today, reserved any) {
		data := do(t, alice, "wallet limit", nil).Data
		return data["today_usd"], data["reserved_usd"]
	}
	_ = explained(t, alice, "who", map[string]any{"name": "nobody"})
	if today, reserved := shown(); today != "0.001" || reserved != "0.001" {
		t.Errorf("today %v, reserved %v", today, reserved)
	}
	do(t, alice, "key rotate", nil)
	if today, _ := shown(); today != "0.003" {
		t.Errorf("today %v after a new key", today)
	}
}

// TestPagesSayHowToGoOn: in a limited room each text has at least 512 characters, the rest stays unread, and each result says how to go on.
func TestPagesSayHowToGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	text := strings.Repeat("x", 600)
	for range 5 {
		do(t, alice, "send", map[string]any{"to": "bob", "text": text})
	}
	run := func(name string, arguments map[string]any) string {
		t.Helper()
		r := &agent.Run{Agent: bob, Context: t.Context(), Args: arguments, Room: 2048}
		value, err := agent.ActionNamed(name).Do(r)
		testkit.NoError(t, err)
		testkit.NoError(t, r.Seen())
		lines := ""
		for _, part := range value.Parts {
			lines += part.Line + "\n"
		}
		return lines
	}
	testkit.Contains(t, run("inbox", map[string]any{"n": 50.0}), "(512 of 600 characters; the whole, free: parley read --message-id msg_",
		"1 more are unread; the next: parley inbox")
	testkit.Contains(t, run("read", map[string]any{"conversation": "alice", "n": 250.0}),
		"older messages: parley read alice -n 250 --before msg_")
	testkit.Contains(t, run("inbox", nil), "msg_")
}
