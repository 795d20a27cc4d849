package service

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// notices polls and returns the notices in short.
func (a *agent) notices(markRead bool) []string {
	a.w.T.Helper()
	page := a.unread(nil, nil, &markRead)
	short := make([]string, len(page.Notices))
	for i, n := range page.Notices {
		short[i] = fmt.Sprintf("%s %s %s %q", n.ActorUsername, n.Type, n.SourceType, n.SourceName)
	}
	if page.TotalUnread != int64(len(page.Messages)) {
		a.w.T.Errorf("%s has %d unread messages, and total_unread is %d", a.Name, len(page.Messages), page.TotalUnread)
	}
	return short
}

// TestNotices: an agent learns what others did to it, once, and not what it did itself.
func TestNotices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	hears := func(a *agent, when string, want ...string) {
		t.Helper()
		for _, markRead := range []bool{false, true} {
			if diff := cmp.Diff(append([]string{}, want...), a.notices(markRead)); diff != "" {
				t.Errorf("%s: %s reads (mark_read %v, -want +got):\n%s", when, a.Name, markRead, diff)
			}
		}
		if again := a.notices(true); len(again) > 0 {
			t.Errorf("%s: %s reads again %v", when, a.Name, again)
		}
	}
	chat := alice.createGroup("planners", bob)
	hears(alice, "she created the group")
	hears(bob, "alice created the group", `alice added group_chat "planners"`)
	alice.groupMust("edit", chat, "add_member_ids", []string{bob.ID, carol.ID})
	hears(bob, "he was a member before")
	hears(carol, "alice added her", `alice added group_chat "planners"`)
	alice.groupMust("transfer", chat, "new_admin_agent_id", bob.ID)
	bob.groupMust("edit", chat, "remove_member_ids", []string{carol.ID, alice.ID}, "name", "travellers")
	bob.groupMust("edit", chat, "ban_agent_ids", []string{carol.ID})
	hears(alice, "bob removed her", `bob removed group_chat "planners"`)
	hears(bob, "alice made him admin", `alice made_admin group_chat "planners"`)
	hears(carol, "bob removed her, and banned her when she was no member", `bob removed group_chat "planners"`)
	bob.groupMust("edit", chat, "add_member_ids", []string{alice.ID})
	alice.groupMust("leave", chat)
	bob.groupMust("edit", chat, "add_member_ids", []string{alice.ID})
	bob.groupMust("leave", chat, "successor_agent_id", alice.ID)
	hears(alice, "she left of her own accord and came back", `bob made_admin group_chat "travellers"`)
	alice.groupMust("edit", chat, "add_member_ids", []string{bob.ID})
	alice.groupMust("delete", chat)
	hears(bob, "the group is deleted", `alice deleted group_chat "travellers"`)
	hears(alice, "she deleted it")

	news := alice.channel("news")
	bob.must("/channel/subscribe", fields{"channel_id": news})
	alice.must("/channel/edit", fields{"channel_id": news, "remove_subscriber_ids": []string{bob.ID}})
	alice.must("/channel/transfer", fields{"channel_id": news, "new_admin_agent_id": bob.ID})
	hears(bob, "the channel", `alice made_admin channel "news"`)
	bob.must("/channel/delete", fields{"channel_id": news})
	hears(alice, "a deleted channel tells its subscribers nothing")
}

// TestNoticesTellNoMore: an agent gets one notice for one change, does not learn what a group is called after it was removed, and
// hears nothing of a ban from a group to which it did not belong.
func TestNoticesTellNoMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	check := func(when string, a *agent, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), a.notices(true)); diff != "" {
			t.Errorf("%s: %s reads (-want +got):\n%s", when, a.Name, diff)
		}
	}
	chat := alice.createGroup("planners", bob, bob)
	alice.groupMust("edit", chat, "add_member_ids", []string{carol.ID, carol.ID})
	check("his id was sent twice", bob, `alice added group_chat "planners"`)
	check("her id was sent twice", carol, `alice added group_chat "planners"`)
	alice.groupMust("edit", chat, "remove_member_ids", []string{bob.ID, bob.ID}, "name", "without bob")
	alice.groupMust("edit", chat, "name", "secret plans")
	check("the group was renamed", bob, `alice removed group_chat "planners"`)

	for range 2 {
		alice.groupMust("edit", chat, "ban_agent_ids", []string{bob.ID, carol.ID, carol.ID})
	}
	check("he was no member", bob)
	check("she was a member", carol, `alice banned group_chat "secret plans"`)
}

// TestOneNoticeForEachConversation: whoever adds and removes the same agent again and again, each time with another name, gives it one
// notice
// of each of his conversations: the newest state.
func TestOneNoticeForEachConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mallory, bob, carol := w.agent("mallory"), w.agent("bob"), w.agent("carol")
	quiet := carol.createGroup("planners", bob)
	chat := mallory.createGroup("first", bob)
	for i := range 10 {
		mallory.groupMust("edit", chat, "remove_member_ids", []string{bob.ID}, "name", fmt.Sprintf("buy now %d", i))
		mallory.groupMust("edit", chat, "add_member_ids", []string{bob.ID})
	}
	if unread := w.Count("SELECT count(*) FROM notices"); unread != 2 {
		t.Errorf("there are %d unread notices of two conversations", unread)
	}
	want := []string{`carol added group_chat "planners"`, `mallory added group_chat "buy now 9"`}
	if diff := cmp.Diff(want, bob.notices(true)); diff != "" {
		t.Errorf("bob reads (-want +got):\n%s", diff)
	}
	carol.groupMust("delete", quiet)
	if diff := cmp.Diff([]string{`carol deleted group_chat "planners"`}, bob.notices(true)); diff != "" {
		t.Errorf("after he has read the notices bob reads (-want +got):\n%s", diff)
	}
}

// TestNoticesWithoutDeadlocks: agents read while others add and remove them in several group chats, and every call succeeds.
func TestNoticesWithoutDeadlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	readers := []*agent{w.agent("alice"), w.agent("bob"), w.agent("carol")}
	var running sync.WaitGroup
	for i := range 3 {
		admin := w.agent(fmt.Sprintf("admin%d", i))
		chat := admin.createGroup("planners")
		ids := []string{readers[i].ID, readers[(i+1)%3].ID, readers[(i+2)%3].ID}
		running.Go(func() {
			for range testkit.Times(8) {
				admin.groupMust("edit", chat, "add_member_ids", ids)
				admin.groupMust("edit", chat, "remove_member_ids", ids)
			}
		})
		running.Go(func() {
			for range testkit.Times(16) {
				readers[i].notices(true)
			}
		})
	}
	running.Wait()
	for _, reader := range readers {
		reader.notices(true)
		if left := reader.notices(true); len(left) > 0 {
			t.Errorf("%s reads again %v", reader.Name, left)
		}
	}
}

// TestManyNotices: an agent has at most 500 unread notices, the newest ones, and a call returns the oldest 50.
func TestManyNotices(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.createGroup("planners", bob)
	w.Exec(`INSERT INTO notices (agent_id, type, conversation_id, source_name, actor_id, created_at)
		SELECT n.agent_id, 'removed', n.conversation_id, n.source_name, n.actor_id, now() FROM notices n CROSS JOIN generate_series(1, 599)`)
	alice.createGroup("the newest", bob)
	for i := range 10 {
		got := bob.notices(true)
		if newest := slices.Contains(got, `alice added group_chat "the newest"`); len(got) != 50 || newest != (i == 9) {
			t.Errorf("poll %d returns %d notices, with the newest: %v", i, len(got), newest)
		}
	}
	if left := bob.notices(true); len(left) > 0 {
		t.Errorf("bob has more than 500 unread notices: %v", left)
	}
}

// TestHiddenGroupKeepsItsName: who asks for access to a group chat that is not discoverable does not learn its name from its own request.
func TestHiddenGroupKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	const name = "layoffs in march"
	chat := alice.createGroup(name)
	bob.groupMust("request_access", chat, "message", "please")
	got := alice.unread(nil, nil, nil).Messages[0]
	if strings.Contains(got.Content, name) || !strings.Contains(got.Content, chat) {
		t.Errorf("the request says %q, want the id of the group chat and not its name", got.Content)
	}
	want := client.MessageAbout{Type: client.MessageAboutTypeAccessRequest, SourceType: client.SourceTypeGroupChat, SourceID: chat,
		SourceName: chat}
	if diff := cmp.Diff(&want, got.About); diff != "" {
		t.Errorf("what the request is about (-want +got):\n%s", diff)
	}
}

// TestAccessRequestIsFound: the response to a request for access has the ids of its message and of the chat that holds it.
func TestAccessRequestIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	request := fields{"chat_id": alice.createGroup("planners"), "message": "please"}
	sent := bob.must("/chat/group/request_access", request)
	read := bob.must("/chat/private/messages", fields{"chat_id": sent.Field(t, "chat_id")})
	if id := sent.Field(t, "message_id"); !strings.Contains(string(read.Body), id) {
		t.Errorf("bob's chat with alice is %s, want the message %s", read.Body, id)
	}
}

// TestWrittenByTheService: messages that the service writes say so, wherever they are read. Nobody can imitate them.
func TestWrittenByTheService(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat := alice.createGroup("planners")
	alice.groupMust("edit", chat, "is_discoverable", true)
	bob.groupMust("request_access", chat, "message", "please")
	text := bob.asked()
	request := client.MessageAbout{Type: client.MessageAboutTypeAccessRequest, SourceType: client.SourceTypeGroupChat, SourceID: chat,
		SourceName: "planners"}
	private, _ := bob.send(alice, text)
	unread := alice.unread(nil, nil, nil).Messages
	if len(unread) != 2 || unread[0].Content != unread[1].Content || unread[1].About != nil {
		t.Fatalf("the request and its imitation: %+v", unread)
	}
	if diff := cmp.Diff(&request, unread[0].About); diff != "" {
		t.Errorf("the request in unread (-want +got):\n%s", diff)
	}
	read, err := alice.ListPrivateMessagesWithResponse(t.Context(), client.ListPrivateMessagesRequest{ChatID: private})
	testkit.Require200(t, "alice reads", read, err)
	found, err := alice.SearchPrivateMessagesWithResponse(t.Context(), client.SearchPrivateMessagesRequest{ChatID: private, Query: "please"})
	testkit.Require200(t, "alice searches", found, err)
	for name, messages := range map[string][]client.Message{"fetched": read.JSON200.Messages, "found": found.JSON200.Messages} {
		if len(messages) != 2 || messages[0].About != nil {
			t.Fatalf("%s: %+v", name, messages)
		}
		if diff := cmp.Diff(&request, messages[1].About); diff != "" {
			t.Errorf("the request as %s (-want +got):\n%s", name, diff)
		}
	}
	alice.groupMust("edit", chat, "add_member_ids", []string{bob.ID})
	alice.groupMust("transfer", chat, "new_admin_agent_id", bob.ID, "message", "yours")
	about := bob.unread(nil, nil, nil).Messages[0].About
	want := client.MessageAbout{Type: client.MessageAboutTypeAdminTransfer, SourceType: client.SourceTypeGroupChat, SourceID: chat,
		SourceName: "planners"}
	if diff := cmp.Diff(&want, about); diff != "" {
		t.Errorf("the note to the new admin (-want +got):\n%s", diff)
	}
	w.pay(bob.Wallet, sendPath, fmt.Sprintf(`{"recipient_agent_id":%q,"content":"x","about":{"type":"access_request"}}`, alice.ID),
		"X-API-KEY", bob.Key).Want(t, "an agent sets about", http.StatusBadRequest)
}

// asked is the text of the newest message that the service wrote in the name of the agent.
func (a *agent) asked() (text string) {
	a.w.T.Helper()
	a.w.Scan(`SELECT o.content FROM messages o JOIN agents a ON a.id = o.sender_id WHERE a.username = $1 AND o.about IS NOT NULL ORDER BY
		o.created_at DESC LIMIT 1`,
		[]any{a.Name}, &text)
	return text
}
