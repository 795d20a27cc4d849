package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// groupFields is the body of a request: pairs of field and value on top of the chat's id.
func groupFields(chat string, pairs ...any) fields {
	body := fields{}
	if chat != "" {
		body["chat_id"] = chat
	}
	for i := 0; i < len(pairs); i += 2 {
		body[pairs[i].(string)] = pairs[i+1]
	}
	return body
}

// groupCall calls an operation of /chat/group with a new payment.
func (a *agent) groupCall(operation, chat string, pairs ...any) testkit.Reply {
	a.w.T.Helper()
	return a.ask("/chat/group/"+operation, groupFields(chat, pairs...))
}

// groupCan is groupCall that must succeed.
func (a *agent) groupMust(operation, chat string, pairs ...any) {
	a.w.T.Helper()
	a.groupCall(operation, chat, pairs...).Require(a.w.T, fmt.Sprintf("%s calls %s", a.Name, operation), 200)
}

// createGroup creates a group chat with these members.
func (a *agent) createGroup(name string, members ...*agent) (chat string) {
	a.w.T.Helper()
	created, err := a.CreateGroupChatWithResponse(a.w.T.Context(), client.CreateGroupChatRequest{Name: name, InitialMemberIds: idsOfAgents(members)})
	testkit.Require200(a.w.T, a.Name+" creates a group", created, err)
	return created.JSON200.ChatID
}

// tells writes to a group chat.
func (a *agent) sendGroup(chat, content string) (message string) {
	a.w.T.Helper()
	a.w.Secret(content)
	sent, err := a.SendGroupMessageWithResponse(a.w.T.Context(), client.SendGroupMessageRequest{ChatID: chat, Content: content})
	testkit.Require200(a.w.T, a.Name+" writes to the group", sent, err)
	return sent.JSON200.MessageID
}

// group is the group chat as this member sees it.
func (a *agent) group(chat string) *client.GroupChat {
	a.w.T.Helper()
	info, err := a.GetGroupChatWithResponse(a.w.T.Context(), client.GroupChatRequest{ChatID: chat})
	testkit.Require200(a.w.T, a.Name+" looks at the group", info, err)
	return info.JSON200
}

// groupOf lists the members' names in the order they joined; the admin's with a star.
func (a *agent) groupOf(chat string) string {
	a.w.T.Helper()
	group := a.group(chat)
	var names []string
	for _, member := range group.Members {
		if member.IsAdmin != (member.AgentID == group.AdminID) {
			a.w.T.Errorf("%s is_admin: %v, but the admin is %s", member.Username, member.IsAdmin, group.AdminID)
		}
		if member.IsAdmin {
			member.Username += "*"
		}
		names = append(names, member.Username)
	}
	if int(group.MemberCount) != len(names) {
		a.w.T.Errorf("the group counts %d members and lists %d", group.MemberCount, len(names))
	}
	return strings.Join(names, " ")
}

// noteFrom returns the newest private message between the two, which must be from that agent.
func (a *agent) noteFrom(from *agent) string {
	a.w.T.Helper()
	var content, sender string
	a.w.Scan(`SELECT o.content, s.username FROM messages o JOIN agents s ON s.id = o.sender_id JOIN private_pairs p USING (conversation_id)
		JOIN agents l ON l.id = p.low_agent JOIN agents h ON h.id = p.high_agent
		WHERE l.username IN ('`+a.Name+`', '`+from.Name+`') AND h.username IN ('`+a.Name+`', '`+from.Name+`') ORDER BY o.number DESC LIMIT 1`, nil, &content, &sender)
	if sender != from.Name {
		a.w.T.Errorf("the note to %s is from %s, want %s", a.Name, sender, from.Name)
	}
	return content
}

func idsOfAgents(agents []*agent) []string {
	ids := []string{}
	for _, a := range agents {
		ids = append(ids, a.ID)
	}
	return ids
}

// addBlock lets one agent block another.
func (w *world) addBlock(blocker, blocked *agent) {
	w.T.Helper()
	w.Exec(`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT a.id, b.id, now() FROM agents a, agents b WHERE a.username = '` + blocker.Name + `' AND b.username = '` + blocked.Name + `'`)
}

// checkGroups fails the test if what must always hold of group chats does not.
func (w *world) checkGroups() {
	w.T.Helper()
	for rule, query := range map[string]string{
		"member_count is the number of members": `SELECT count(*) FROM conversations c WHERE kind = 'group' AND member_count <>
			(SELECT count(*) FROM memberships m WHERE m.conversation_id = c.id AND m.status = 'member')`,
		"the admin is a member": `SELECT count(*) FROM conversations c WHERE kind = 'group' AND NOT EXISTS
			(SELECT 1 FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id = c.admin_id AND m.status = 'member')`,
		"at most five different messages of the group are pinned": `SELECT count(*) FROM conversations c WHERE kind = 'group' AND (cardinality(pinned) > 5 OR cardinality(pinned) <>
			(SELECT count(*) FROM messages o WHERE o.conversation_id = c.id AND o.id = ANY (c.pinned)))`,
		"messages are numbered without gaps": `SELECT count(*) FROM conversations c WHERE last_number <> (SELECT count(*) FROM messages o WHERE o.conversation_id = c.id)
			OR last_number <> (SELECT coalesce(max(number), 0) FROM messages o WHERE o.conversation_id = c.id)`,
		"markers stay in their conversation": `SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			WHERE m.status = 'member' AND m.read_number + m.unread_own > c.last_number`,
		"every payment has come to its end": `SELECT count(*) FROM payments WHERE state NOT IN ('delivered', 'undeliverable')`,
	} {
		if broken := w.Count(query); broken != 0 {
			w.T.Errorf("not always true: %s (%d)", rule, broken)
		}
	}
}

// TestLifeOfAGroupChat is the life of a group from its founding to its end, through the generated client.
func TestLifeOfAGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	before := w.Revenue()

	created, err := alice.CreateGroupChatWithResponse(ctx, client.CreateGroupChatRequest{
		Name: "Travel planners 🧳", Description: new("Agents that plan trips together."), IsDiscoverable: new(true),
		InitialMemberIds: []string{carol.ID, bob.ID, alice.ID, carol.ID}, // the caller, and one twice
	})
	if err != nil || created.JSON200 == nil || !created.JSON200.Success {
		t.Fatalf("alice creates a group: %v %s", err, created.Body)
	}
	chat := created.JSON200.ChatID
	want := &client.GroupChat{
		ChatID: chat, Name: "Travel planners 🧳", Description: new("Agents that plan trips together."), AdminID: alice.ID, MemberCount: 3,
		PinnedMessageIds: []string{}, PinnedMessages: []client.Message{}, IsDiscoverable: true, Members: []client.GroupMember{
			{AgentID: alice.ID, Username: "alice", Description: "I am alice.", IsAdmin: true},
			{AgentID: carol.ID, Username: "carol", Description: "I am carol."},
			{AgentID: bob.ID, Username: "bob", Description: "I am bob."},
		},
	}
	times := cmpopts.IgnoreFields(client.GroupChat{}, "CreatedAt")
	joined := cmpopts.IgnoreFields(client.GroupMember{}, "JoinedAt")
	sent := cmpopts.IgnoreFields(client.Message{}, "CreatedAt")
	seen := bob.group(chat)
	if diff := cmp.Diff(want, seen, times, joined); diff != "" {
		t.Errorf("the new group (-want +got):\n%s", diff)
	}
	if seen.CreatedAt < 1.7e9 || seen.Members[0].JoinedAt < seen.CreatedAt || seen.Members[2].JoinedAt < seen.Members[1].JoinedAt {
		t.Errorf("founded at %f, joined at %f, %f and %f", seen.CreatedAt, seen.Members[0].JoinedAt, seen.Members[1].JoinedAt, seen.Members[2].JoinedAt)
	}

	alice.sendGroup(chat, "Who knows a quiet hotel in Sintra?")
	second := bob.sendGroup(chat, "I do.")
	edited, err := alice.EditGroupChatWithResponse(ctx, client.EditGroupChatRequest{ChatID: chat, Name: new("Planners"), AddMemberIds: []string{dave.ID}})
	if err != nil || edited.JSON200 == nil || !edited.JSON200.Success {
		t.Fatalf("alice renames the group and adds dave: %v %s", err, edited.Body)
	}
	pinned, err := alice.PinGroupMessageWithResponse(ctx, client.PinGroupMessageRequest{ChatID: chat, MessageID: second})
	if err != nil || pinned.JSON200 == nil || !slices.Equal(pinned.JSON200.PinnedMessageIds, []string{second}) {
		t.Errorf("alice pins: %v %s", err, pinned.Body)
	}
	left, err := carol.LeaveGroupChatWithResponse(ctx, client.LeaveGroupChatRequest{ChatID: chat})
	if err != nil || left.JSON200 == nil {
		t.Errorf("carol leaves: %v %s", err, left.Body)
	}
	asked, err := carol.RequestGroupAccessWithResponse(ctx, client.RequestGroupAccessRequest{ChatID: chat})
	if err != nil || asked.JSON200 == nil {
		t.Errorf("carol asks to come back: %v %s", err, asked.Body)
	}
	handed, err := alice.TransferGroupChatWithResponse(ctx, client.TransferGroupChatRequest{ChatID: chat, NewAdminAgentID: dave.ID})
	if err != nil || handed.JSON200 == nil {
		t.Errorf("alice hands the group to dave: %v %s", err, handed.Body)
	}
	want.Name, want.AdminID, want.PinnedMessageIds, want.Members[0].IsAdmin = "Planners", dave.ID, []string{second}, false
	want.PinnedMessages = []client.Message{{
		MessageID: second, SenderID: bob.ID, SenderUsername: "bob", Content: "I do.", ContentType: "text/plain",
		Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{},
	}}
	want.Members[1], want.Members[2] = want.Members[2], client.GroupMember{AgentID: dave.ID, Username: "dave", Description: "I am dave.", IsAdmin: true}
	if diff := cmp.Diff(want, alice.group(chat), times, joined, sent); diff != "" {
		t.Errorf("the group after all that (-want +got):\n%s", diff)
	}
	deleted, err := dave.DeleteGroupChatWithResponse(ctx, client.GroupChatRequest{ChatID: chat})
	if err != nil || deleted.JSON200 == nil || !deleted.JSON200.Success {
		t.Errorf("dave deletes the group: %v %s", err, deleted.Body)
	}
	me, err := dave.GetOwnAgentWithResponse(ctx)
	if err != nil || me.JSON200 == nil || me.JSON200.ChatCount != 0 {
		t.Errorf("after the end dave still has chats: %v %s", err, me.Body)
	}
	prices := uint64(150_000 + 1_000 + 2*5_000 + 2_000 + 5_000 + 2_000 + 5_000 + 2_000 + 1_000 + 2_000 + 1_000)
	if got := w.Revenue() - before; got != prices {
		t.Errorf("the group's life brought %d, want %d", got, prices)
	}
	w.checkGroups()
}

// TestGroupMessages: a new member reads what was written before it joined, but has only unread what comes later.
func TestGroupMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	chat := alice.createGroup("planners", bob, carol)
	first := alice.sendGroup(chat, "Who knows a quiet hotel in Sintra?")
	second := bob.sendGroup(chat, "I do.")
	alice.groupMust("edit", chat, "add_member_ids", []string{dave.ID})
	read, err := dave.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: chat})
	testkit.Require200(t, "dave reads what was before him", read, err)
	none := client.Message{ContentType: "text/plain", Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}}
	one, two := none, none
	one.MessageID, one.SenderID, one.SenderUsername, one.Content = first, alice.ID, "alice", "Who knows a quiet hotel in Sintra?"
	two.MessageID, two.SenderID, two.SenderUsername, two.Content = second, bob.ID, "bob", "I do."
	if diff := cmp.Diff(&client.MessagePage{Total: 2, Page: 1, Messages: []client.Message{two, one}}, read.JSON200, cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
		t.Errorf("the group's messages (-want +got):\n%s", diff)
	}
	older, err := carol.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: chat, N: new(int64(1)), BeforeMessageID: &second})
	if err != nil || older.JSON200 == nil || older.JSON200.Total != 2 || len(older.JSON200.Messages) != 1 || older.JSON200.Messages[0].MessageID != first {
		t.Errorf("what was before bob's message: %v %s", err, older.Body)
	}
	// Whoever wrote or read is up to date, who joined late too; carol has read the first message.
	for _, test := range []struct {
		a      *agent
		unread int
	}{{alice, 1}, {bob, 1}, {carol, 1}, {dave, 0}} {
		unread := w.Count(`SELECT c.last_number - m.read_number - m.unread_own FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			JOIN agents a ON a.id = m.agent_id WHERE a.username = '` + test.a.Name + `'`)
		if unread != test.unread {
			t.Errorf("%s has %d unread, want %d", test.a.Name, unread, test.unread)
		}
	}
}

// TestGroupRefusals sends what must be refused, each with a good payment of its own, and compares balances.
func TestGroupRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave, erin := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave"), w.agent("erin")
	chat := alice.createGroup("planners", bob)
	gone := alice.createGroup("gone", bob)
	alone := alice.createGroup("alone")
	other := alice.createGroup("other", bob)
	message, elsewhere := bob.sendGroup(chat, "a message of the group"), bob.sendGroup(other, "a message of another group")
	private, _ := alice.send(bob, "a private message")
	for i := range 5 {
		alice.groupMust("pin", chat, "message_id", bob.sendGroup(chat, fmt.Sprintf("pinned message %d", i)))
	}
	alice.groupMust("edit", chat, "ban_agent_ids", []string{carol.ID})
	alice.groupMust("delete", gone)
	w.addBlock(erin, alice)
	ids := func(agents ...*agent) []string { return idsOfAgents(agents) }

	refusals := []refusal{
		{"founding with an unknown agent", alice, "/chat/group/create", groupFields("", "name", "x", "initial_member_ids", []string{bob.ID, noAgent}), 404, client.ErrorCodeAgentNotFound},
		{"founding with one that blocks the caller", alice, "/chat/group/create", groupFields("", "name", "x", "initial_member_ids", ids(bob, erin)), 403, client.ErrorCodeBlocked},
		{"an agent to add and to remove", alice, "/chat/group/edit", groupFields(chat, "add_member_ids", ids(dave), "remove_member_ids", ids(dave)), 400, client.ErrorCodeInvalidRequest},
		{"an agent to ban and to unban", alice, "/chat/group/edit", groupFields(chat, "ban_agent_ids", ids(dave), "unban_agent_ids", ids(bob, dave)), 400, client.ErrorCodeInvalidRequest},
		{"an agent to unban and to add", alice, "/chat/group/edit", groupFields(chat, "unban_agent_ids", ids(carol), "add_member_ids", ids(carol)), 400, client.ErrorCodeInvalidRequest},
		{"adding an unknown agent", alice, "/chat/group/edit", groupFields(chat, "name", "x", "add_member_ids", []string{dave.ID, noAgent}), 404, client.ErrorCodeAgentNotFound},
		{"removing an unknown agent", alice, "/chat/group/edit", groupFields(chat, "name", "x", "remove_member_ids", []string{bob.ID, noAgent}), 404, client.ErrorCodeAgentNotFound},
		{"banning an unknown agent", alice, "/chat/group/edit", groupFields(chat, "name", "x", "ban_agent_ids", []string{bob.ID, noAgent}), 404, client.ErrorCodeAgentNotFound},
		{"unbanning an unknown agent", alice, "/chat/group/edit", groupFields(chat, "name", "x", "unban_agent_ids", []string{carol.ID, noAgent}), 404, client.ErrorCodeAgentNotFound},
		{"adding a banned agent", alice, "/chat/group/edit", groupFields(chat, "name", "x", "add_member_ids", ids(dave, carol)), 403, client.ErrorCodeBanned},
		{"adding one that blocks the caller", alice, "/chat/group/edit", groupFields(chat, "name", "x", "remove_member_ids", ids(bob), "add_member_ids", ids(dave, erin)), 403, client.ErrorCodeBlocked},
		{"the admin removes itself", alice, "/chat/group/edit", groupFields(chat, "name", "x", "remove_member_ids", ids(bob, alice)), 409, client.ErrorCodeAdminMustTransfer},
		{"the admin bans itself", alice, "/chat/group/edit", groupFields(chat, "name", "x", "ban_agent_ids", ids(alice)), 409, client.ErrorCodeAdminMustTransfer},
		{"pinning a message of another group", alice, "/chat/group/pin", groupFields(chat, "message_id", elsewhere), 404, client.ErrorCodeMessageNotFound},
		{"pinning an unknown message", alice, "/chat/group/pin", groupFields(chat, "message_id", noMessage), 404, client.ErrorCodeMessageNotFound},
		{"a sixth pin", alice, "/chat/group/pin", groupFields(chat, "message_id", message), 409, client.ErrorCodePinLimit},
		{"messages before one of another group", bob, "/chat/group/messages", groupFields(chat, "before_message_id", elsewhere), 404, client.ErrorCodeMessageNotFound},
		{"a member asks for access", bob, "/chat/group/request_access", groupFields(chat), 409, client.ErrorCodeAlreadyMember},
		{"the admin asks for access", alice, "/chat/group/request_access", groupFields(chat), 409, client.ErrorCodeAlreadyMember},
		{"a banned agent asks for access", carol, "/chat/group/request_access", groupFields(chat), 403, client.ErrorCodeBanned},
		{"access to a group that is not there", dave, "/chat/group/request_access", groupFields(noChat), 404, client.ErrorCodeChatNotFound},
		{"access to a private chat", dave, "/chat/group/request_access", groupFields(private), 404, client.ErrorCodeChatNotFound},
		{"access to a deleted group", dave, "/chat/group/request_access", groupFields(gone), 410, client.ErrorCodeDeleted},
		{"the admin leaves without successor", alice, "/chat/group/leave", groupFields(chat), 400, client.ErrorCodeSuccessorRequired},
		{"the admin leaves itself the group", alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", alice.ID), 400, client.ErrorCodeSuccessorRequired},
		{"an unknown successor", alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", noAgent), 404, client.ErrorCodeAgentNotFound},
		{"a stranger as successor", alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", dave.ID), 403, client.ErrorCodeNotMember},
		{"a banned successor", alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", carol.ID), 403, client.ErrorCodeBanned},
		{"the only member leaves", alice, "/chat/group/leave", groupFields(alone), 409, client.ErrorCodeAdminAlone},
		{"the only member leaves it to a stranger", alice, "/chat/group/leave", groupFields(alone, "successor_agent_id", bob.ID), 409, client.ErrorCodeAdminAlone},
		{"a transfer to oneself", alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", alice.ID), 400, client.ErrorCodeInvalidRequest},
		{"a transfer to nobody", alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", noAgent), 404, client.ErrorCodeAgentNotFound},
		{"a transfer to a stranger", alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", dave.ID, "message", "yours"), 403, client.ErrorCodeNotMember},
		{"a transfer to a banned agent", alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", carol.ID), 403, client.ErrorCodeBanned},
	}
	w.refuses(append(refusals, refusalsOfGroup(chat, gone, private, message, alice, bob, carol, dave)...))
	w.checkGroups()
}

// refusalsOfGroup are the refusals of each operation on a group chat: by those who may not, of a deleted one, and of what is no group.
func refusalsOfGroup(chat, gone, private, message string, admin, member, banned, stranger *agent) (all []refusal) {
	for _, operation := range []struct {
		name   string
		admins bool
		pairs  []any
	}{
		{"info", false, nil}, {"messages", false, nil}, {"send", false, []any{"content", "let me in"}}, {"leave", false, []any{"successor_agent_id", member.ID}},
		{"edit", true, []any{"name", "x"}}, {"delete", true, nil}, {"pin", true, []any{"message_id", message}}, {"transfer", true, []any{"new_admin_agent_id", member.ID}},
	} {
		path := "/chat/group/" + operation.name
		all = append(all,
			refusal{operation.name + " of a stranger", stranger, path, groupFields(chat, operation.pairs...), 403, client.ErrorCodeNotMember},
			refusal{operation.name + " of a banned agent", banned, path, groupFields(chat, operation.pairs...), 403, client.ErrorCodeBanned},
			refusal{operation.name + " of an unknown group", admin, path, groupFields(noChat, operation.pairs...), 404, client.ErrorCodeChatNotFound},
			refusal{operation.name + " of a private chat", admin, path, groupFields(private, operation.pairs...), 404, client.ErrorCodeChatNotFound},
			refusal{operation.name + " of a deleted group by its admin", admin, path, groupFields(gone, operation.pairs...), 410, client.ErrorCodeDeleted},
			refusal{operation.name + " of a deleted group by a stranger", stranger, path, groupFields(gone, operation.pairs...), 410, client.ErrorCodeDeleted})
		if operation.admins {
			all = append(all, refusal{operation.name + " of a member", member, path, groupFields(chat, operation.pairs...), 403, client.ErrorCodeNotAdmin})
		}
	}
	return all
}

// TestEditGroupChat: an edit adds, removes, bans and unbans.
func TestEditGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	chat := alice.createGroup("planners", bob)
	ids := func(agents ...*agent) []string { return idsOfAgents(agents) }
	for _, test := range []struct {
		name  string
		pairs []any
		want  string
	}{
		{"adding a member, and a new one twice", []any{"add_member_ids", ids(bob, carol, carol, alice)}, "alice* bob carol"},
		{"removing a stranger, and a member twice", []any{"remove_member_ids", ids(dave, bob, bob)}, "alice* carol"},
		{"adding one who was removed", []any{"add_member_ids", ids(bob)}, "alice* carol bob"},
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
	w.checkGroups()
}

// TestEditGroupFields: an edit changes only the fields that it names.
func TestEditGroupFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, carol := w.agent("alice"), w.agent("carol")
	chat := alice.createGroup("planners", carol)
	face := func() string {
		group := carol.group(chat)
		description := "none"
		if group.Description != nil {
			description = *group.Description
		}
		return fmt.Sprint(group.Name, " / ", description, " / ", group.IsDiscoverable)
	}
	for _, test := range []struct {
		pairs []any
		want  string
	}{
		{[]any{"is_discoverable", true}, "planners / none / true"},
		{[]any{"description", "trips"}, "planners / trips / true"},
		{[]any{"name", "travellers"}, "travellers / trips / true"},
		{[]any{"is_discoverable", false, "description", ""}, "travellers /  / false"},
	} {
		alice.groupMust("edit", chat, test.pairs...)
		if got := face(); got != test.want {
			t.Errorf("after an edit with %v: %s, want %s", test.pairs, got, test.want)
		}
	}
}

// TestEditGroupOfBlockers: who has blocked the admin stays a member, but cannot be added; who was removed cannot read.
func TestEditGroupOfBlockers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat := alice.createGroup("planners", carol)
	ids := func(agents ...*agent) []string { return idsOfAgents(agents) }
	w.addBlock(carol, alice)
	alice.groupMust("edit", chat, "add_member_ids", ids(carol, bob))
	if got := alice.groupOf(chat); got != "alice* carol bob" {
		t.Errorf("adding again a member that has blocked the admin: the members are %q", got)
	}
	alice.groupMust("edit", chat, "remove_member_ids", ids(carol))
	alice.groupCall("edit", chat, "add_member_ids", ids(carol)).Want(t, "adding a stranger that has blocked the admin", 403, "blocked")

	// Who was removed, or banned, has nothing unread and cannot read on.
	bob.sendGroup(chat, "are you still there?")
	carol.groupCall("messages", chat).Want(t, "carol, who was removed, reads", 403, "not_member")
	w.checkGroups()
}

// TestFullGroupChat: a full group takes nobody, unless somebody goes with the same edit.
func TestFullGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, dave := w.agent("alice"), w.agent("bob"), w.agent("dave")
	chat := alice.createGroup("travellers", bob)
	ids := func(agents ...*agent) []string { return idsOfAgents(agents) }
	w.Exec(`WITH crowd AS (
			INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			SELECT gen_random_uuid(), 'crowd_' || n, '', true, sha256(CAST(CAST(n AS text) AS bytea)), now() FROM generate_series(3, ` + fmt.Sprint(store.MemberLimit) + `) AS n
			RETURNING id
		)
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, crowd.id, 'member', 0, 0, now() FROM conversations c, crowd WHERE c.kind = 'group'`)
	w.Exec(fmt.Sprintf(`UPDATE conversations SET member_count = %d WHERE kind = 'group'`, store.MemberLimit))
	alice.groupMust("edit", chat, "unban_agent_ids", ids(dave))
	alice.groupCall("edit", chat, "name", "too full", "add_member_ids", ids(bob, dave)).WantRefused(t, "a member more than there may be", 409, "member_limit")
	alice.groupMust("edit", chat, "add_member_ids", ids(dave), "remove_member_ids", ids(bob))
	if group := dave.group(chat); len(group.Members) != store.MemberLimit || group.Name != "travellers" {
		t.Errorf("the full group is %q with %d members", group.Name, len(group.Members))
	}
	w.checkGroups()
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
		if diff := cmp.Diff(want, bob.group(chat).PinnedMessageIds); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	for _, number := range []int{4, 0, 3, 1, 2} {
		pin(number).Want(t, fmt.Sprintf("pinning message %d", number), 200)
	}
	expect("after five pins", 4, 0, 3, 1, 2)
	if a := pin(0); a.Status != http.StatusOK || !strings.Contains(string(a.Body), messages[4]) {
		t.Errorf("pinning a pinned one of a full list: %v, want 200 and the list", a)
	}
	expect("after pinning a pinned one", 4, 0, 3, 1, 2)
	pin(5).WantRefused(t, "a sixth pin", 409, "pin_limit")
	alice.groupMust("edit", chat, "unpin_message_ids", []string{messages[3], messages[6], messages[3], noMessage})
	expect("after one was taken away", 4, 0, 1, 2)
	pin(5).Want(t, "a pin in its place", 200)
	expect("after a pin in its place", 4, 0, 1, 2, 5)
	alice.groupMust("edit", chat, "unpin_message_ids", messages)
	expect("after all were taken away")
	w.checkGroups()
}

// TestGroupNotes: what is said to an admin is a private message from the caller that names the group.
func TestGroupNotes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	name := `"Planners" of Lisbon` + "\n👨‍👩‍👧 " + strings.Repeat("é", 30)
	chat := alice.createGroup(name, bob)
	long := strings.Repeat("語", 1023) + "!"

	carol.groupMust("request_access", chat, "message", long)
	if note := alice.noteFrom(carol); !strings.Contains(note, "carol asks") || !strings.Contains(note, name) || !strings.Contains(note, chat) || !strings.HasSuffix(note, long) {
		t.Errorf("carol's request with a note is %q", note)
	}
	carol.groupMust("request_access", chat)
	if note := alice.noteFrom(carol); !strings.Contains(note, "carol asks") || !strings.Contains(note, chat) || strings.Contains(note, "!") {
		t.Errorf("carol's request without a note is %q", note)
	}
	if got := alice.groupOf(chat); got != "alice* bob" {
		t.Errorf("asking for access made the members %q", got)
	}
	alice.groupMust("transfer", chat, "new_admin_agent_id", bob.ID)
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != 2 {
		t.Errorf("a transfer without a note left %d messages, want the two requests", messages)
	}
	bob.groupMust("transfer", chat, "new_admin_agent_id", alice.ID, "message", "it is yours again")
	if note := alice.noteFrom(bob); !strings.Contains(note, name) || !strings.Contains(note, chat) || !strings.HasSuffix(note, "it is yours again") {
		t.Errorf("bob's transfer says %q", note)
	}
	alice.groupMust("leave", chat, "successor_agent_id", bob.ID, "transfer_message", "farewell")
	if note := bob.noteFrom(alice); !strings.Contains(note, name) || !strings.Contains(note, chat) || !strings.HasSuffix(note, "farewell") {
		t.Errorf("alice leaves with %q", note)
	}
	if got := bob.groupOf(chat); got != "bob*" {
		t.Errorf("after alice left the members are %q, want bob alone", got)
	}
	if chats := w.Count(`SELECT count(*) FROM private_pairs`); chats != 2 {
		t.Errorf("notes opened %d private chats, want one of each pair", chats)
	}
	w.checkGroups()
}

// TestLeaveGroupChat: who left may be added again, and starts with nothing unread.
func TestLeaveGroupChat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat := alice.createGroup("planners", bob, carol)
	bob.sendGroup(chat, "before leaving")
	bob.groupMust("leave", chat)
	alice.sendGroup(chat, "while he was away")
	bob.groupCall("leave", chat).Want(t, "bob leaves twice", 403, "not_member")
	// A successor is the admin's to name; of others it means nothing.
	carol.groupMust("leave", chat, "successor_agent_id", carol.ID, "transfer_message", "for nobody")
	if got := alice.groupOf(chat); got != "alice*" {
		t.Errorf("after bob and carol left the members are %q", got)
	}
	alice.groupMust("edit", chat, "add_member_ids", []string{bob.ID})
	unread := w.Count(`SELECT c.last_number - m.read_number - m.unread_own FROM memberships m JOIN conversations c ON c.id = m.conversation_id JOIN agents a ON a.id = m.agent_id WHERE a.username = 'bob'`)
	if unread != 0 {
		t.Errorf("bob is added again and has %d unread, want none", unread)
	}
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != 2 {
		t.Errorf("leaving left %d messages, want the two that were sent", messages)
	}
	w.checkGroups()
}

// codesOf counts the replies by their code; those of a 200 have none.
func codesOf(replies []testkit.Reply) map[string]int {
	counts := map[string]int{}
	for _, a := range replies {
		counts[a.Code]++
	}
	return counts
}

func TestRaceForTheLastPin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	chat := alice.createGroup("planners")
	var racers []racer
	for number := range 7 {
		message := alice.sendGroup(chat, fmt.Sprintf("message number %d", number))
		if number < 4 {
			alice.groupMust("pin", chat, "message_id", message)
			continue
		}
		racers = append(racers, racer{alice, "/chat/group/pin", groupFields(chat, "message_id", message)})
	}
	if diff := cmp.Diff(map[string]int{"": 1, "pin_limit": 2}, codesOf(w.atOnce(racers...))); diff != "" {
		t.Errorf("three pins for one place (-want +got):\n%s", diff)
	}
	if pins := len(alice.group(chat).PinnedMessageIds); pins != 5 {
		t.Errorf("%d messages are pinned, want 5", pins)
	}
	w.checkGroups()
}

func TestRaceOfTransferAndLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	for round := range 6 {
		chat := alice.createGroup("planners", bob, carol)
		handOver := racer{alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", bob.ID, "message", "yours")}
		if round%2 == 1 {
			handOver = racer{alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", bob.ID, "transfer_message", "yours")}
		}
		replies := w.atOnce(handOver, racer{bob, "/chat/group/leave", groupFields(chat)})
		want := map[string]string{"": "successor_required", "not_member": ""}
		if code, known := want[replies[0].Code]; !known || replies[1].Code != code {
			t.Errorf("alice hands the group to bob while he leaves: %v and %v, want one of them refused", replies[0], replies[1])
		}
		w.checkGroups()
	}
	if notes, handed := w.Count(`SELECT count(*) FROM messages`), w.Count(`SELECT count(*) FROM conversations c JOIN agents a ON a.id = c.admin_id WHERE a.username = 'bob'`); notes != handed {
		t.Errorf("bob became admin %d times and got %d notes", handed, notes)
	}
}

// TestRaceOfBanAndSends: from the ban on there is no message of the banned agent.
func TestRaceOfBanAndSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat := alice.createGroup("planners", bob, carol)
	var racers []racer
	for i := range 8 {
		racers = append(racers, racer{bob, "/chat/group/send", groupFields(chat, "content", fmt.Sprintf("bob's message %d", i))},
			racer{carol, "/chat/group/send", groupFields(chat, "content", fmt.Sprintf("carol's message %d", i))})
	}
	racers = slices.Insert(racers, 5, racer{alice, "/chat/group/edit", groupFields(chat, "ban_agent_ids", []string{bob.ID})})
	replies := w.atOnce(racers...)
	sent := 0
	for i, a := range replies {
		switch {
		case a.Status == http.StatusOK && racers[i].path == "/chat/group/send":
			sent++
		case a.Status == http.StatusOK, racers[i].who == bob && a.Code == "banned":
		default:
			t.Errorf("%s's %s: %v", racers[i].who.Name, racers[i].path, a)
		}
	}
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != sent {
		t.Errorf("%d sends were replied with 200, there are %d messages", sent, messages)
	}
	if late := w.Count(`SELECT count(*) FROM messages o JOIN memberships m ON m.conversation_id = o.conversation_id AND m.agent_id = o.sender_id
		WHERE m.status = 'banned' AND o.created_at > m.joined_at`); late != 0 {
		t.Errorf("%d messages of bob are younger than his ban", late)
	}
	w.checkGroups()
}

// TestRaceOfDeleteAndSends: from the end on there is no message.
func TestRaceOfDeleteAndSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat := alice.createGroup("planners", bob)
	first := bob.sendGroup(chat, "the first message")
	racers := []racer{
		{alice, "/chat/group/pin", groupFields(chat, "message_id", first)}, {alice, "/chat/group/edit", groupFields(chat, "name", "renamed")},
		{alice, "/chat/group/transfer", groupFields(chat, "new_admin_agent_id", bob.ID)}, {bob, "/chat/group/leave", groupFields(chat)},
	}
	for i := range 8 {
		racers = append(racers, racer{bob, "/chat/group/send", groupFields(chat, "content", fmt.Sprintf("bob's message %d", i))})
	}
	racers = slices.Insert(racers, 6, racer{alice, "/chat/group/delete", groupFields(chat)})
	replies := w.atOnce(racers...)
	sent := 1
	for i, a := range replies {
		if a.Status == http.StatusOK && racers[i].path == "/chat/group/send" {
			sent++
		}
		if a.Status == http.StatusServiceUnavailable || a.Status == http.StatusInternalServerError {
			t.Errorf("%s's %s: %v", racers[i].who.Name, racers[i].path, a)
		}
	}
	if messages := w.Count(`SELECT count(*) FROM messages`); messages != sent {
		t.Errorf("%d sends were replied with 200, there are %d messages", sent, messages)
	}
	if late := w.Count(`SELECT count(*) FROM messages o JOIN conversations c ON c.id = o.conversation_id WHERE o.created_at > c.deleted_at`); late != 0 {
		t.Errorf("%d messages are younger than the group's end", late)
	}
	w.checkGroups()
}

// TestGroupMembersComeAndGo: the same agents are added, removed and banned, and leave, all at once.
func TestGroupMembersComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	chat := alice.createGroup("planners", bob)
	everybody := idsOfAgents([]*agent{bob, carol, dave})
	backwards := idsOfAgents([]*agent{dave, carol, bob})
	for range 2 {
		for i, a := range w.atOnce(
			racer{alice, "/chat/group/edit", groupFields(chat, "add_member_ids", everybody)},
			racer{alice, "/chat/group/edit", groupFields(chat, "add_member_ids", backwards)},
			racer{alice, "/chat/group/edit", groupFields(chat, "remove_member_ids", backwards)},
			racer{alice, "/chat/group/edit", groupFields(chat, "ban_agent_ids", []string{dave.ID, carol.ID})},
			racer{alice, "/chat/group/edit", groupFields(chat, "unban_agent_ids", []string{carol.ID, dave.ID})},
			racer{bob, "/chat/group/leave", groupFields(chat)},
			racer{bob, "/chat/group/send", groupFields(chat, "content", "am I in?")},
			racer{bob, "/chat/group/messages", groupFields(chat)},
			racer{bob, "/chat/group/info", groupFields(chat)},
			racer{alice, "/chat/group/leave", groupFields(chat, "successor_agent_id", bob.ID)},
		) {
			if !slices.Contains([]string{"", "banned", "not_member", "not_admin", "successor_required", "admin_alone", "admin_must_transfer"}, a.Code) {
				t.Errorf("call %d of the race: %v", i, a)
			}
		}
		w.checkGroups()
	}
}
