package service

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// insertConversation inserts a group chat or channel in the database: its admin, and its members or subscribers.
func (w *world) insertConversation(kind, name string, admin *agent, members ...*agent) {
	w.T.Helper()
	w.Exec(fmt.Sprintf(`INSERT INTO conversations (id, kind, name, admin_id, member_count, created_at)
		SELECT gen_random_uuid(), '%s', '%s', id, %d, now() FROM agents WHERE username = '%s'`, kind, name, len(members), admin.Name))
	for _, member := range members {
		w.Exec(fmt.Sprintf(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at) SELECT c.id, a.id,
			'member', c.last_number, c.last_number, now() FROM conversations c, agents a
			WHERE c.name = '%s' AND a.username = '%s'`, name, member.Name))
	}
}

// insertMessage writes to an inserted conversation.
func (w *world) insertMessage(name string, sender *agent, content string) {
	w.T.Helper()
	w.Secret(content)
	w.Exec(fmt.Sprintf(`
		WITH bumped AS (UPDATE conversations SET last_number = last_number + 1, last_message_at = clock_timestamp() WHERE name = '%s' RETURNING
		*),
		own AS (UPDATE memberships m SET unread_own = unread_own + 1 FROM bumped b, agents a WHERE m.conversation_id = b.id AND m.agent_id = a.id
		AND a.username = '%s')
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at) SELECT b.id, b.last_number, gen_random_uuid(), a.id,
		'%s', b.last_message_at FROM bumped b, agents a WHERE a.username = '%[2]s'`,
		name, sender.Name, content))
}

// unread polls; nil means the contract's default.
func (a *agent) unread(page, size *int64, markRead *bool) *client.UnreadPage {
	a.w.T.Helper()
	unread, err := a.ListUnreadMessagesWithResponse(a.w.T.Context(), &client.ListUnreadMessagesParams{Page: page, PageSize: size,
		MarkRead: markRead})
	testkit.Require200(a.w.T, a.Name+" polls", unread, err)
	return unread.JSON200
}

// contents is a page in short: source and content of each message.
func contents(page *client.UnreadPage) []string {
	short := []string{}
	for _, message := range page.Messages {
		prefix, _, _ := strings.Cut(message.SourceID, "_")
		short = append(short, fmt.Sprintf("%s in %s %s: %s", message.SenderUsername, message.SourceType, prefix, message.Content))
	}
	return short
}

func TestUnreadMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	w.insertConversation("group", "the group", carol, alice, bob, carol)
	w.insertConversation("channel", "the channel", alice, bob, carol)
	chat, first := alice.send(bob, "private one")
	w.insertMessage("the group", carol, "group one")
	bob.send(alice, "a reply")
	w.insertMessage("the channel", alice, "broadcast")
	w.insertMessage("the group", bob, "bobs own")
	w.insertMessage("the group", alice, "group two")
	alice.send(bob, "private two")

	all := []string{
		"alice in private_chat chat: private one", "carol in group_chat chat: group one", "alice in channel channel: broadcast",
		"alice in group_chat chat: group two", "alice in private_chat chat: private two",
	}
	check := func(when string, page *client.UnreadPage, total int64, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), contents(page)); diff != "" || page.TotalUnread != total {
			t.Errorf("%s: total %d, want %d; messages (-want +got):\n%s", when, page.TotalUnread, total, diff)
		}
	}
	var names []string
	for _, message := range bob.unread(nil, nil, new(false)).Messages {
		names = append(names, message.SourceName)
	}
	if want := []string{"alice", "the group", "the channel", "the group", "alice"}; !slices.Equal(names, want) {
		t.Errorf("the messages come from %q, want %q", names, want)
	}
	// Looking changes nothing, and pages are stable.
	for range 2 {
		check("looking", bob.unread(nil, nil, new(false)), 5, all...)
		check("looking at page 1 of 2", bob.unread(nil, new(int64(2)), new(false)), 5, all[:2]...)
		check("looking at page 2 of 2", bob.unread(new(int64(2)), new(int64(2)), new(false)), 5, all[2:4]...)
		check("looking at page 3 of 2", bob.unread(new(int64(3)), new(int64(2)), new(false)), 5, all[4:]...)
		check("looking beyond the end", bob.unread(new(int64(4)), new(int64(2)), new(false)), 5)
		check("looking as far as pages go", bob.unread(new(int64(501)), new(int64(2)), new(false)), 5)
	}
	page := bob.unread(nil, nil, new(false))
	if page.Page != 1 || page.PageSize != 50 {
		t.Errorf("a page by default is page %d of %d, want 1 of 50", page.Page, page.PageSize)
	}
	want := client.UnreadMessage{MessageID: first, SenderID: alice.ID, SenderUsername: "alice", Content: "private one",
		ContentType: "text/plain",
		CreatedAt:   page.Messages[0].CreatedAt, SourceType: client.SourceTypePrivateChat, SourceID: chat, SourceName: "alice"}
	if diff := cmp.Diff(want, page.Messages[0]); diff != "" ||
		time.Since(time.UnixMilli(int64(page.Messages[0].CreatedAt*1000))).Abs() > time.Minute {
		t.Errorf("the oldest message (-want +got):\n%s", diff)
	}

	// The default marks as read, and so does the next page 1 follow.
	check("polling", bob.unread(nil, new(int64(2)), nil), 5, all[:2]...)
	check("polling again", bob.unread(nil, new(int64(2)), nil), 3, all[2:4]...)
	w.insertMessage("the group", carol, "group three")
	check("polling when something has come", bob.unread(nil, nil, nil), 2, all[4], "carol in group_chat chat: group three")
	check("polling when all is read", bob.unread(nil, nil, nil), 0)

	// What is gone is not unread.
	w.insertMessage("the group", carol, "group four")
	w.insertMessage("the channel", alice, "broadcast two")
	check("bob", bob.unread(nil, nil, new(false)), 2, "carol in group_chat chat: group four", "alice in channel channel: broadcast two")
	w.Exec(`UPDATE memberships m SET status = 'banned' FROM conversations c, agents a
		WHERE c.id = m.conversation_id AND c.name = 'the group' AND a.id = m.agent_id AND a.username = 'bob'`)
	check("bob after a ban", bob.unread(nil, nil, new(false)), 1, "alice in channel channel: broadcast two")
	w.Exec("UPDATE conversations SET deleted_at = now() WHERE name = 'the channel'")
	check("bob after a deletion", bob.unread(nil, nil, new(false)), 0)
}

// TestLateUnreadPagesAreRefused: a page that begins after more than the oldest 1,000 messages costs nothing and says how to get there.
func TestLateUnreadPagesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	revenue, paid := w.Revenue(), uint64(0)
	for _, test := range []struct {
		query string
		late  bool
	}{
		{"?page=21", false}, {"?page=22", true},
		{"?page=5&page_size=250", false}, {"?page=6&page_size=250", true},
		{"?page=1001&page_size=1&mark_read=false", false}, {"?page=1002&page_size=1&mark_read=false&wait=60", true},
		{"?page=9007199254740991&page_size=250&read_through=c0", true},
	} {
		page := alice.polls(test.query, alice.signsPoll())
		if !test.late {
			page.Require(t, test.query, http.StatusOK)
			paid += 1_000
			continue
		}
		page.WantRefused(t, test.query, http.StatusBadRequest, "invalid_request")
		if !bytes.Contains(page.Body, []byte("read_through")) || !bytes.Contains(page.Body, []byte(`"field":"?page"`)) {
			t.Errorf("%s: %s, want the field and the remedy", test.query, page.Body)
		}
	}
	if charged := w.Revenue() - revenue; charged != paid {
		t.Errorf("the calls cost %d, want %d", charged, paid)
	}
}

// TestAdminWithoutSubscription: a channel's admin who does not subscribe has nothing unread there.
func TestAdminWithoutSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	w.insertConversation("channel", "news", alice, bob)
	w.insertMessage("news", bob, "from the admin before")
	if page := alice.unread(nil, nil, nil); len(page.Messages) != 0 || page.TotalUnread != 0 {
		t.Errorf("the admin has %+v", page)
	}
}

// TestUnreadResponsesAreNotLost: the same payment gets the same reply although its messages are read by now; the next
// payment does not.
func TestUnreadResponsesAreNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	alice.send(bob, "not to be lost")
	sign := func() string { return w.signFor(bob.Wallet, http.MethodGet, unreadPath) }
	get := func(query, payment string) testkit.Reply {
		return w.call(http.MethodGet, unreadPath+query, "", "X-API-KEY", bob.Key, x402.HeaderPaymentSignature, payment)
	}
	revenue := w.Revenue()
	payment := sign()
	first := get("", payment)
	if first.Status != http.StatusOK || !bytes.Contains(first.Body, []byte("not to be lost")) {
		t.Fatalf("bob polls: %v", first)
	}
	if again := get("", payment); !bytes.Equal(again.Body, first.Body) {
		t.Errorf("the same payment: %v, want %v", again, first)
	}
	if spelled := get("?page=1&mark_read=true", payment); !bytes.Equal(spelled.Body, first.Body) {
		t.Errorf("the same payment with the defaults spelled out: %v, want %v", spelled, first)
	}
	if next := get("", sign()); next.Status != http.StatusOK || bytes.Contains(next.Body, []byte("not to be lost")) {
		t.Errorf("another payment: %v, want no messages", next)
	}
	if charged := w.Revenue() - revenue; charged != 2000 {
		t.Errorf("two polls have brought %d", charged)
	}
}
