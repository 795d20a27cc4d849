package agent_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestResolve: a name is looked up once; whoever wrote may be answered, and is not trusted by that.
func TestResolve(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	found, err := alice.Resolve(t.Context(), "bob")
	if err != nil || found.Kind != agent.KindAgent || found.Known() {
		t.Fatalf("bob is %+v, %v; want an agent that is not known", found, err)
	}
	before := w.Revenue()
	if again, err := alice.Resolve(t.Context(), found.ID); err != nil || again.Name != "bob" || w.Revenue() != before {
		t.Errorf("the second time bob is %+v, %v, and %d was paid", again, err, w.Revenue()-before)
	}
	if again, err := alice.Resolve(t.Context(), "@Bob"); err != nil || again.ID != found.ID || w.Revenue() != before {
		t.Errorf("@Bob is %+v, %v, and %d was paid", again, err, w.Revenue()-before)
	}
	if _, err := alice.Resolve(t.Context(), "Not a name"); err == nil || w.Revenue() != before {
		t.Errorf("what cannot be a name: %v, and %d was paid", err, w.Revenue()-before)
	}
	call(t, alice, "sendPrivateMessage", map[string]any{"recipient_agent_id": found.ID, "content": "hello"})
	unread := call(t, bob, "listUnreadMessages", nil)
	var page client.UnreadPage
	testkit.NoError(t, json.Unmarshal(unread.Body, &page))
	contacts, err := bob.Contacts()
	testkit.NoError(t, err)
	sender, err := contacts.Find("alice")
	if err != nil || sender == nil || !sender.Wrote || sender.Trusted || sender.Chat != page.Messages[0].SourceID {
		t.Errorf("alice is %+v, %v; want one who wrote", sender, err)
	}
	if contacts.Shows(sender.ID, sender.Chat) {
		t.Error("the text of a stranger is shown")
	}
	// The chat is found without the contacts too.
	if chat, err := alice.Chat(t.Context(), found); err != nil || chat != sender.Chat {
		t.Errorf("alice's chat with bob is %q, %v; want %q", chat, err, sender.Chat)
	}
}

// TestNamesAreRemembered: a name that a listing, a search, a subscription or a creation has shown costs nothing, and is trusted by none of
// these. Only a channel that was subscribed to, or looked up by its name, has its name.
func TestNamesAreRemembered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	id := func(result *agent.Result, field string) string {
		var fields map[string]any
		testkit.NoError(t, json.Unmarshal(result.Body, &fields))
		return fields[field].(string)
	}
	channel := id(call(t, alice, "createChannel", map[string]any{"name": "weather", "description": "rain"}), "channel_id")
	group := id(call(t, alice, "createGroupChat", map[string]any{"name": "walks", "is_discoverable": true}), "chat_id")
	free := func(of *agent.Agent, name, id string) {
		t.Helper()
		before := w.Revenue()
		found, err := of.Resolve(t.Context(), name)
		if err != nil || found.ID != id || w.Revenue() != before {
			t.Errorf("%s is %+v, %v, and %d was paid; want %s for nothing", name, found, err, w.Revenue()-before, id)
		}
	}
	free(alice, "#weather", channel)
	if found, err := alice.Resolve(t.Context(), "weather", agent.KindChannel); err != nil || found.ID != channel {
		t.Errorf("where only a channel is meant, weather is %+v, %v", found, err)
	}
	free(alice, "walks", group)
	call(t, bob, "searchAgents", map[string]any{"query": "alice"})
	call(t, bob, "searchGroups", map[string]any{"query": "walks"})
	call(t, bob, "searchChannels", map[string]any{"query": "rain"})
	contacts, err := bob.Contacts()
	testkit.NoError(t, err)
	if known, err := contacts.Find("#weather"); known != nil || err != nil || contacts.ByID(channel) == nil || len(contacts) != 3 {
		t.Errorf("after searches the contacts are %+v, #weather is %+v, %v", contacts, known, err)
	}
	for _, one := range contacts {
		if !one.Seen() || one.State() != "stranger" {
			t.Errorf("%+v is more than seen", one)
		}
	}
	free(bob, "alice", contacts[0].ID)
	free(bob, group, group)
	call(t, bob, "subscribeChannel", map[string]any{"channel_id": channel})
	free(bob, "#weather", channel)
	call(t, alice, "editChannel", map[string]any{"channel_id": channel, "name": "bank"})
	free(alice, "#bank", channel)
	call(t, bob, "getChannel", map[string]any{"channel_id": channel})
	free(bob, "#weather", channel) // its admin cannot take another name at bob's
}

// TestConversationsThatEnd: the name of a channel or group chat that was deleted or left is free again, also if its admin deleted it.
// #name is how a channel is addressed, so its name is without the mark.
func TestConversationsThatEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	bob, _ := w.register("bob")
	channel := map[string]any{"channel_id": field(t, call(t, alice, "createChannel", map[string]any{"name": "#news"}), "channel_id")}
	if found, err := alice.Resolve(t.Context(), "#news"); err != nil || found.Name != "news" || found.ID != channel["channel_id"] {
		t.Errorf("#news is %+v, %v", found, err)
	}
	group := map[string]any{"chat_id": field(t, call(t, alice, "createGroupChat", map[string]any{"name": "team"}), "chat_id")}
	call(t, bob, "subscribeChannel", channel)
	for _, id := range []any{channel["channel_id"], group["chat_id"]} {
		for _, of := range []*agent.Agent{alice, bob} {
			testkit.NoError(t, of.ChangeContact(t.Context(), id.(string), func(c *agent.Contact) { c.Trusted = true }))
		}
	}
	call(t, alice, "deleteChannel", channel)
	call(t, alice, "deleteGroupChat", group)
	for operation, arguments := range map[string]map[string]any{"getChannel": channel, "getGroupChat": group} {
		if _, err := bob.Call(t.Context(), operation, arguments, agent.CallOptions{}); err == nil {
			t.Errorf("%s: what was deleted is there", operation)
		}
	}
	w.register("team")
	if missing, ok := errors.AsType[*agent.NotFoundError](func() error { _, err := alice.Resolve(t.Context(), "team"); return err }()); !ok ||
		!missing.Ended {
		t.Error("an agent with the name of the group that has ended is taken for it")
	}
	for _, of := range []*agent.Agent{alice, bob} {
		contacts, err := of.Contacts()
		testkit.NoError(t, err)
		for _, one := range contacts {
			if own := of == alice && one.Kind != agent.KindAgent; !one.Seen() || one.Ended != (one.Kind != agent.KindAgent) || one.Own != own {
				t.Errorf("%+v is more than seen, or not ended", one)
			}
		}
	}
}

// TestBlocked: a block is remembered until it ends, also if the contact is forgotten.
func TestBlocked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.register("bob")
	bob, err := alice.Resolve(t.Context(), "bob")
	testkit.NoError(t, err)
	for _, operation := range []string{"blockAgent", "unblockAgent"} {
		call(t, alice, operation, map[string]any{"agent_id": bob.ID})
		testkit.NoError(t, alice.ForgetContact(t.Context(), bob.ID))
		contacts, err := alice.Contacts()
		testkit.NoError(t, err)
		if known := contacts.ByID(bob.ID); (known != nil && known.Blocked) != (operation == "blockAgent") {
			t.Errorf("after %s bob is %+v", operation, known)
		}
	}
}

// TestNamesThatStrangersChoose: the name of a group chat is nobody's until the owner trusts it, and never hides an agent.
func TestNamesThatStrangersChoose(t *testing.T) {
	t.Parallel()
	contacts := agent.Contacts{
		{Name: "bob", ID: "chat_01k70t94aqeembse7n65ptksh0", Kind: agent.KindGroup},
		{Name: "team", ID: "chat_01k70t94aqeembse7n65ptksh1", Kind: agent.KindGroup, Trusted: true},
		{Name: "team", ID: "chat_01k70t94aqeembse7n65ptksh2", Kind: agent.KindGroup, Trusted: true},
	}
	if found, err := contacts.Find("bob"); found != nil || err != nil {
		t.Errorf("a group chat of a stranger is found as %+v, %v", found, err)
	}
	_, err := contacts.Find("team")
	if ambiguous, ok := errors.AsType[*agent.AmbiguousError](err); !ok || len(ambiguous.IDs) != 2 {
		t.Errorf("two group chats with one name: %v", err)
	}
	contacts = append(contacts, agent.Contact{Name: "team", ID: "agent_01k70t94aqeembse7n65ptksh0", Kind: agent.KindAgent})
	if found, err := contacts.Find("team"); err != nil || found.Kind != agent.KindAgent {
		t.Errorf("team is %+v, %v; want the agent", found, err)
	}
}

// TestRegisterApproved: registering costs more than the limits allow, once, and leaves the day's limit as it is.
func TestRegisterApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agreed(w.wallet())
	if _, err := a.Register(t.Context(), "alice", ""); err == nil {
		t.Error("an account above the limit was created without an approval")
	}
	if _, err := a.RegisterApproved(t.Context(), "alice", ""); err != nil {
		t.Fatal(err)
	}
	limits, left, _, err := a.Ledger().Limits(t.Context())
	// Asking for the TAN was within the limits at the first attempt; it is not asked for twice.
	if want := limits.PerDay - 10_000 - 1_000; err != nil || limits != agent.DefaultLimits || left.PerDay != want {
		t.Errorf("the limits are %+v, %d is left of the day (%v); want %d of the default", limits, left.PerDay, err, want)
	}
	if w.Revenue() != testkit.Dollar+1_000 {
		t.Errorf("%d was paid", w.Revenue())
	}
}

// TestMissingNames: a channel or a group chat that is not found has an error of its own, and so has a group chat that is not trusted. Where
// only a group chat can be meant, nothing is looked up.
func TestMissingNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	const chat = "chat_01k70t94aqeembse7n65ptksh0"
	testkit.NoError(t, alice.ChangeContact(t.Context(), chat, func(c *agent.Contact) { c.Name, c.Kind = "team", agent.KindGroup }))
	before := w.Revenue()
	_, err := alice.Resolve(t.Context(), "team", agent.KindGroup)
	if group, ok := errors.AsType[*agent.GroupNotTrustedError](err); !ok || group.Group.ID != chat || w.Revenue() != before {
		t.Errorf("the group chat team: %v; %d was paid", err, w.Revenue()-before)
	}
	_, err = alice.Resolve(t.Context(), "team")
	if _, ok := errors.AsType[*agent.GroupNotTrustedError](err); !ok {
		t.Errorf("team, which is no agent: %v", err)
	}
	_, err = alice.Resolve(t.Context(), "#nosuch")
	if missing, ok := errors.AsType[*agent.NotFoundError](err); !ok || missing.Kind != agent.KindChannel {
		t.Errorf("a channel that does not exist: %v", err)
	}
	testkit.NoError(t, alice.ChangeContact(t.Context(), "channel_01k70t94aqeembse7n65ptksh0", func(c *agent.Contact) {
		c.Name, c.Kind = "news", agent.KindChannel
	}))
	before = w.Revenue()
	for name, kinds := range map[string][]string{"news": {agent.KindGroup, agent.KindChannel}, "@News": nil} {
		if _, err = alice.Resolve(t.Context(), name, kinds...); err == nil || !strings.Contains(err.Error(), "did you mean #news?") {
			t.Errorf("%s, which is a channel: %v", name, err)
		}
	}
	_, err = alice.Resolve(t.Context(), "trip team")
	if missing, ok := errors.AsType[*agent.NotFoundError](err); !ok || missing.Kind != agent.KindGroup || w.Revenue() != before {
		t.Errorf("a name that no agent has: %v; %d was paid", err, w.Revenue()-before)
	}
}

// TestPlainNames: programs get names as they are, people and commands get them in quotes. An untamed name is shown to neither.
func TestPlainNames(t *testing.T) {
	t.Parallel()
	const id = "chat_01k70t94aqeembse7n65ptksh0"
	for name, want := range map[string][2]string{"Go readers": {"Go readers", `"Go readers"`}, "team": {"team", "team"}, "`rm`": {id, id}} {
		of := agent.Contact{Name: name, ID: id, Kind: agent.KindGroup, Trusted: true}
		if got := [2]string{of.Plain(), of.String()}; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
