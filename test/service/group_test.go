package service

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestLifeOfAGroupChat is the life of a group from its founding to its end.
func TestLifeOfAGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	before := w.Revenue()
	chat := alice.must("/chat/group/create", fields{
		"name": "Travel planners 🧳", "description": "Agents that plan trips together.", "is_discoverable": true,
		"initial_member_ids": []*agent{carol, bob, alice, carol}, // the caller, and one twice
	}).Field(t, "chat_id")
	want := &client.GroupChat{
		ChatID: chat, Name: "Travel planners 🧳", Description: new("Agents that plan trips together."), AdminID: alice.ID, MemberCount: 3,
		PinnedMessageIds: []string{}, PinnedMessages: []client.Message{}, IsDiscoverable: true, Members: []client.GroupMember{
			{AgentID: alice.ID, Username: "alice", Description: "I am alice.", IsAdmin: true},
			{AgentID: carol.ID, Username: "carol", Description: "I am carol."},
			{AgentID: bob.ID, Username: "bob", Description: "I am bob."},
		},
	}
	times := cmp.Options{cmpopts.IgnoreFields(client.GroupChat{}, "CreatedAt"), cmpopts.IgnoreFields(client.GroupMember{}, "JoinedAt"),
		cmpopts.IgnoreFields(client.Message{}, "CreatedAt")}
	seen := bob.group(chat)
	if diff := cmp.Diff(want, seen, times); diff != "" {
		t.Errorf("the new group (-want +got):\n%s", diff)
	}
	founded, joined := seen.CreatedAt, []float64{seen.Members[0].JoinedAt, seen.Members[1].JoinedAt, seen.Members[2].JoinedAt}
	if founded < 1.7e9 || joined[0] < founded || joined[2] < joined[1] {
		t.Errorf("founded at %f, joined at %f", founded, joined)
	}
	alice.sendGroup(chat, "Who knows a quiet hotel in Sintra?")
	second := bob.sendGroup(chat, "I do.")
	alice.groupMust("edit", chat, "name", "Planners", "add_member_ids", []*agent{dave})
	alice.groupMust("pin", chat, "message_id", second)
	carol.groupMust("leave", chat)
	carol.groupMust("request_access", chat)
	alice.groupMust("transfer", chat, "new_admin_agent_id", dave)
	want.Name, want.AdminID, want.PinnedMessageIds, want.Members[0].IsAdmin = "Planners", dave.ID, []string{second}, false
	want.PinnedMessages = []client.Message{{
		MessageID: second, SenderID: bob.ID, SenderUsername: "bob", Content: "I do.", ContentType: "text/plain",
		Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{},
	}}
	want.Members[1] = want.Members[2]
	want.Members[2] = client.GroupMember{AgentID: dave.ID, Username: "dave", Description: "I am dave.", IsAdmin: true}
	if diff := cmp.Diff(want, alice.group(chat), times); diff != "" {
		t.Errorf("the group after all that (-want +got):\n%s", diff)
	}
	dave.groupMust("delete", chat)
	me, err := dave.GetOwnAgentWithResponse(t.Context())
	if err != nil || me.JSON200 == nil || me.JSON200.ChatCount != 0 {
		t.Errorf("after the end dave still has chats: %v %s", err, me.Body)
	}
	prices := uint64(150_000 + 1_000 + 2*5_000 + 2_000 + 5_000 + 2_000 + 5_000 + 2_000 + 1_000 + 2_000 + 1_000)
	if got := w.Revenue() - before; got != prices {
		t.Errorf("the group's life brought %d, want %d", got, prices)
	}
	w.checkConversations()
}

// TestEditGroupChat: an edit adds, removes, bans and unbans, and changes only what it names.
func TestEditGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	chat := alice.createGroup("planners", bob)
	w.addBlock(bob, alice)
	ids := func(agents ...*agent) []*agent { return agents }
	for _, test := range []struct {
		name  string
		pairs []any
		want  string
	}{
		{"a member that blocks the admin, and a new one twice", []any{"add_member_ids", ids(bob, carol, carol, alice)}, "alice* bob carol"},
		{"removing a stranger, and a member twice", []any{"remove_member_ids", ids(dave, carol, carol)}, "alice* bob"},
		{"adding one who was removed", []any{"add_member_ids", ids(carol)}, "alice* bob carol"},
		{"banning a member and a stranger, one twice", []any{"ban_agent_ids", ids(carol, dave, carol)}, "alice* bob"},
		{"banning a banned one", []any{"ban_agent_ids", ids(carol)}, "alice* bob"},
		{"removing a banned one lifts nothing", []any{"remove_member_ids", ids(carol)}, "alice* bob"},
		{"unbanning makes nobody a member", []any{"unban_agent_ids", ids(carol, bob, alice)}, "alice* bob"},
		{"one who was unbanned, for another", []any{"add_member_ids", ids(carol), "remove_member_ids", ids(bob)}, "alice* carol"},
		{"empty lists", []any{"add_member_ids", ids(), "remove_member_ids", ids()}, "alice* carol"},
		{"unpinning what is not pinned", []any{"unpin_message_ids", []string{noMessage}}, "alice* carol"},
	} {
		alice.groupMust("edit", chat, test.pairs...)
		if got := alice.groupOf(chat); got != test.want {
			t.Errorf("%s: the members are %q, want %q", test.name, got, test.want)
		}
	}
	if a := dave.groupCall("request_access", chat); a.Code != "banned" {
		t.Errorf("dave, who was never unbanned, asks for access: %v, want 403 banned", a)
	}
	for _, test := range []struct {
		pairs []any
		want  string
	}{
		{[]any{"is_discoverable", true}, "planners <nil> true"},
		{[]any{"description", "trips"}, "planners trips true"},
		{[]any{"name", "travellers"}, "travellers trips true"},
		{[]any{"is_discoverable", false, "description", ""}, "travellers  false"},
	} {
		alice.groupMust("edit", chat, test.pairs...)
		group := carol.group(chat)
		var description any
		if group.Description != nil {
			description = *group.Description
		}
		if got := fmt.Sprintf("%s %v %v", group.Name, description, group.IsDiscoverable); got != test.want {
			t.Errorf("after an edit with %v: %s, want %s", test.pairs, got, test.want)
		}
	}
	w.checkConversations()
}

// TestFullGroupChat: a full group takes nobody, unless somebody goes with the same edit.
func TestFullGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, dave := w.agent("alice"), w.agent("bob"), w.agent("dave")
	chat := alice.createGroup("travellers", bob)
	w.crowd("group", store.MemberLimit-2)
	alice.groupMust("edit", chat, "add_member_ids", []*agent{bob}) // a member already
	alice.groupCall("edit", chat, "name", "too full", "add_member_ids", []*agent{bob, dave}).
		WantRefused(t, "a member more than there may be", 409, "member_limit")
	alice.groupMust("edit", chat, "add_member_ids", []*agent{dave}, "remove_member_ids", []*agent{bob})
	if group := dave.group(chat); len(group.Members) != store.MemberLimit || group.Name != "travellers" {
		t.Errorf("the full group is %q with %d members", group.Name, len(group.Members))
	}
	w.checkConversations()
}

// TestGroupPins: five at the most, the newest last, each once.
func TestGroupPins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat := alice.createGroup("planners", bob)
	var messages []string
	for number := range 7 {
		messages = append(messages, bob.sendGroup(chat, fmt.Sprintf("message number %d", number)))
	}
	pin := func(number int) testkit.Reply { return alice.groupCall("pin", chat, "message_id", messages[number]) }
	expect := func(when string, numbers ...int) {
		t.Helper()
		want := make([]string, len(numbers))
		for i, number := range numbers {
			want[i] = messages[number]
		}
		group, shown := bob.group(chat), []string{}
		for _, message := range group.PinnedMessages {
			shown = append(shown, message.MessageID)
		}
		if diff := cmp.Diff([][]string{want, want}, [][]string{group.PinnedMessageIds, shown}); diff != "" {
			t.Errorf("%s, the pins and their messages (-want +got):\n%s", when, diff)
		}
	}
	for _, number := range []int{4, 0, 3, 1, 2} {
		pin(number).Want(t, fmt.Sprintf("pinning message %d", number), 200)
	}
	if a := pin(0); a.Status != http.StatusOK || !strings.Contains(string(a.Body), messages[4]) {
		t.Errorf("pinning a pinned one of a full list: %v, want 200 and the list", a)
	}
	expect("after five pins, one of them twice", 4, 0, 3, 1, 2)
	pin(5).WantRefused(t, "a sixth pin", 409, "pin_limit")
	alice.groupMust("edit", chat, "unpin_message_ids", []string{messages[3], messages[6], messages[3], noMessage})
	expect("after one was taken away", 4, 0, 1, 2)
	pin(5).Want(t, "a pin in its place", 200)
	expect("after a pin in its place", 4, 0, 1, 2, 5)
	alice.groupMust("edit", chat, "unpin_message_ids", messages)
	expect("after all were taken away")
	w.checkConversations()
}

// TestGroupNotes: what is said to an admin is a private message from the caller that names the group. Leaving says nothing.
func TestGroupNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	name := `"Planners" of Lisbon ` + "👨‍👩‍👧 " + strings.Repeat("é", 30)
	chat := alice.createGroup(name, bob)
	alice.groupMust("edit", chat, "is_discoverable", true)
	long := strings.Repeat("語", 1023) + "!"
	says := func(to, from *agent, what string, parts ...string) {
		t.Helper()
		note := to.noteFrom(from)
		for _, part := range append(parts, name, chat) {
			if !strings.Contains(note, part) {
				t.Errorf("%s: the note is %q without %q", what, note, part)
			}
		}
	}
	carol.groupMust("request_access", chat, "message", long)
	says(alice, carol, "a request with a note", "carol asks", long)
	carol.groupCall("request_access", chat, "message", long).WantRefused(t, "the same request again", 409, "already_requested")
	carol.groupMust("request_access", chat)
	says(alice, carol, "a request without a note", "carol asks")
	if note := alice.noteFrom(carol); strings.Contains(note, "!") {
		t.Errorf("carol's request without a note is %q", note)
	}
	alice.groupMust("transfer", chat, "new_admin_agent_id", bob.ID)
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != 2 {
		t.Errorf("a transfer without a note left %d messages, want the two requests", messages)
	}
	bob.groupMust("transfer", chat, "new_admin_agent_id", alice.ID, "message", "it is yours again")
	says(alice, bob, "a transfer", "it is yours again")
	alice.groupMust("edit", chat, "add_member_ids", []*agent{carol})
	// Only the admin names a successor.
	carol.groupCall("leave", chat, "transfer_message", "for nobody").WantRefused(t, "a note to nobody", 400, "invalid_request")
	carol.groupMust("leave", chat, "successor_agent_id", carol.ID)
	alice.groupMust("leave", chat, "successor_agent_id", bob.ID, "transfer_message", "farewell")
	says(bob, alice, "the admin leaves", "farewell")
	if got := bob.groupOf(chat); got != "bob*" {
		t.Errorf("after carol and alice left the members are %q, want bob alone", got)
	}
	chats, messages := w.Count(`SELECT count(*) FROM private_pairs`), w.Count(`SELECT count(*) FROM messages`)
	if chats != 2 || messages != 4 {
		t.Errorf("%d notes in %d private chats, want four in one of each pair", messages, chats)
	}
	w.checkConversations()
}
