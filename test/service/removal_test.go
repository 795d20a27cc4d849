package service

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const removedText = "[removed by the operator]"

// shown is a message in short.
func shown(m client.Message) string {
	removed := m.Removed != nil && *m.Removed
	return fmt.Sprintf("%s %s: %s (%d reactions, removed %v)", m.MessageID, m.SenderUsername, m.Content, len(m.Reactions), removed)
}

// TestRemovedMessage: a removed message keeps its place, sender and reactions in a private chat, a group chat and a channel; its content
// is nowhere.
func TestRemovedMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	chat, private := alice.send(bob, "a vile secret one")
	group, channel := alice.createGroup("planners", bob), alice.channel("news")
	bob.must("/channel/subscribe", fields{"channel_id": channel})
	inGroup, inChannel := alice.sendGroup(group, "a vile secret two"), alice.broadcast(channel, "a vile secret three")
	alice.groupMust("pin", group, "message_id", inGroup)
	removed := map[string]string{private: chat, inGroup: group, inChannel: channel}
	for message := range removed {
		bob.react(message, "👎")
	}
	for message := range removed {
		o.must(o.on.RemoveMessage(t.Context(), o.by, o.id(message)))
		o.audited("messages.remove", message)
	}

	unread := bob.unread(nil, nil, new(false))
	if unread.TotalUnread != 3 || len(unread.Messages) != 3 {
		t.Fatalf("bob has %d unread messages, want three", unread.TotalUnread)
	}
	for _, message := range unread.Messages {
		if message.Content != removedText || message.Removed == nil || !*message.Removed || message.SenderUsername != "alice" {
			t.Errorf("bob polls %+v, want it removed", message)
		}
	}
	for _, reader := range []*agent{alice, bob} {
		read, err := reader.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: group})
		testkit.Require200(t, "the group chat", read, err)
		broadcast := reader.reads("the channel", client.ListChannelMessagesRequest{ChannelID: channel}, 1, inChannel)
		for message, m := range map[string]client.Message{private: reader.page(chat)[0], inGroup: read.JSON200.Messages[0],
			inChannel: broadcast[0]} {
			if diff := cmp.Diff(message+" alice: "+removedText+" (1 reactions, removed true)", shown(m)); diff != "" {
				t.Errorf("%s reads (-want +got):\n%s", reader.Name, diff)
			}
		}
		for _, query := range []string{"vile", "removed by the operator", "v.le|rem.ved"} {
			for path, body := range map[string]fields{
				"/chat/private/search": {"chat_id": chat, "query": query}, "/chat/group/search": {"chat_id": group, "query": query},
				"/channel/search": {"channel_id": channel, "query": query},
			} {
				found := reader.ask(path, body)
				if found.Require(t, path, http.StatusOK); !strings.Contains(string(found.Body), `"count":0`) {
					t.Errorf("%s finds %s in %s", reader.Name, found, path)
				}
			}
		}
		if pinned := reader.group(group).PinnedMessageIds; len(pinned) != 0 {
			t.Errorf("%s sees the pins %v", reader.Name, pinned)
		}
	}
	if left := w.Count("SELECT count(*) FROM messages WHERE content LIKE '%vile%'"); left != 0 || w.Count(testkit.NumberGaps) != 0 {
		t.Errorf("%d messages still have the content, or numbers have gaps", left)
	}
}

// TestStoredResponsesWithRemovedMessage: a payment that read a message returns its stored response no more after the message was
// removed. Responses of others and of other operations stay.
func TestStoredResponsesWithRemovedMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	o := w.operator()
	chat, message := alice.send(bob, "a vile secret")
	stored, err := o.on.StoredMessage(t.Context(), o.id(message))
	o.must(err)
	type paid struct{ path, body, payment, key string }
	pay := func(a *agent, path string, body fields) paid {
		t.Helper()
		one := paid{path, body.json(t), w.sign(a.Wallet, path), a.Key}
		w.call(http.MethodPost, path, one.body, "X-API-KEY", one.key, x402.HeaderPaymentSignature, one.payment).Require(t, path, http.StatusOK)
		return one
	}
	repeat := func(one paid) testkit.Reply {
		t.Helper()
		return w.call(http.MethodPost, one.path, one.body, "X-API-KEY", one.key, x402.HeaderPaymentSignature, one.payment)
	}
	reads := []paid{pay(bob, "/chat/private/messages", fields{"chat_id": chat}),
		pay(alice, "/chat/private/search", fields{"chat_id": chat, "query": "vile"})}
	others := []paid{pay(alice, "/chat/private/send", fields{"recipient_agent_id": carol, "content": "hello"}),
		pay(bob, "/agent/profile", fields{"username": "carol"})}
	private := w.Count("SELECT count(*) FROM conversations")
	for _, one := range append(reads, others...) {
		repeat(one).Require(t, "a repetition", http.StatusOK)
	}
	o.must(o.on.RemoveMessage(t.Context(), o.by, o.id(message)))
	operations, err := parley.Reads()
	o.must(err)
	of := store.StoredReads{Operations: operations, Conversation: stored.ConversationID, Since: stored.CreatedAt}
	if erased, err := o.on.EraseReads(t.Context(), of); err != nil || erased != 5 {
		t.Errorf("%d stored responses are erased, %v; want the page, the search and three profiles", erased, err)
	}
	for _, one := range reads {
		if again := repeat(one); strings.Contains(string(again.Body), "secret") {
			t.Errorf("%s returns the removed content: %v", one.path, again)
		}
	}
	for _, one := range others {
		repeat(one).Want(t, one.path, http.StatusOK)
	}
	if w.Count("SELECT count(*) FROM conversations") != private {
		t.Error("a repetition made a conversation")
	}
}

// texts are the properties of responses that have what agents wrote.
var texts = []string{"content", "description", "name", "source_name", "username", "sender_username", "actor_username"}

// TestReadsShowWhatAgentsWrote: each operation whose response has text of agents is one of parley.Reads, and no read has a secret.
func TestReadsShowWhatAgentsWrote(t *testing.T) {
	t.Parallel()
	reads, err := parley.Reads()
	if err != nil || len(reads) < 15 {
		t.Fatalf("the reads are %v, %v", reads, err)
	}
	for name, route := range testkit.Operations {
		body := route.Operation.Responses.Status(http.StatusOK).Value.Content.Get("application/json")
		read := slices.Contains(reads, route.Operation.OperationID)
		if testkit.Price(name) > 0 && containsText(body.Schema.Value) && !read {
			t.Errorf("%s returns what agents wrote, and is not one of parley.Reads", name)
		}
		if read && route.Operation.Extensions["x-secret-response"] == true {
			t.Errorf("%s is a read with a secret", name)
		}
	}
}

// containsText reports whether a value of this schema contains what an agent wrote.
func containsText(schema *openapi3.Schema) bool {
	for name, property := range schema.Properties {
		if slices.Contains(texts, name) || containsText(property.Value) {
			return true
		}
	}
	return schema.Items != nil && containsText(schema.Items.Value)
}

// TestRemovedConversation: nobody can use a conversation that the operator has removed, until it is restored as it was.
func TestRemovedConversation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	o := w.operator()
	group, channel := alice.createGroup("planners", bob), alice.channel("travel news")
	private, _ := carol.send(alice, "a private chat")
	bob.must("/channel/subscribe", fields{"channel_id": channel})
	message := alice.sendGroup(group, "in the group")
	alice.groupMust("pin", group, "message_id", message)
	broadcast := alice.broadcast(channel, "in the channel")
	bob.notices(true)
	bob.send(carol, "so that bob has no unread notices")
	for _, id := range []string{group, channel} {
		o.must(o.on.RemoveConversation(t.Context(), o.by, o.id(id)))
		o.audited("conversations.remove", id)
	}
	for name, gone := range map[string]testkit.Reply{
		"the admin sends":     alice.ask("/channel/send", fields{"channel_id": channel, "content": "x"}),
		"a member reads":      bob.groupCall("messages", group),
		"a subscriber reads":  bob.ask("/channel/messages", fields{"channel_id": channel}),
		"a stranger looks":    carol.ask("/channel/info", fields{"channel_id": channel}),
		"a stranger may join": carol.groupCall("request_access", group, "message", "please"),
	} {
		gone.WantRefused(t, name, http.StatusGone, "deleted")
	}
	if found := carol.ask("/search/channels", fields{"query": "travel"}); strings.Contains(string(found.Body), channel) {
		t.Errorf("carol finds %v", found)
	}
	for _, told := range []*agent{alice, bob} {
		for _, notice := range told.unread(nil, nil, new(false)).Notices {
			if notice.Type != client.NoticeTypeDeleted || notice.ByOperator == nil || !*notice.ByOperator {
				t.Errorf("%s is told %+v", told.Name, notice)
			}
		}
	}
	if a, b := len(alice.unread(nil, nil, new(false)).Notices), len(bob.unread(nil, nil, new(true)).Notices); a != 2 || b != 1 {
		t.Errorf("alice has %d notices and bob %d; want both conversations, and the group chat", a, b)
	}
	for _, refused := range []error{o.on.RemoveConversation(t.Context(), o.by, o.id(group)),
		o.on.RemoveConversation(t.Context(), o.by, o.id(private))} {
		if refused == nil {
			t.Error("a removed conversation, or a private chat, can be removed")
		}
	}

	for _, id := range []string{group, channel} {
		o.must(o.on.RestoreConversation(t.Context(), o.by, o.id(id)))
		o.audited("conversations.restore", id)
	}
	if members, pins := bob.groupOf(group), bob.group(group).PinnedMessageIds; members != "alice* bob" || len(pins) != 1 {
		t.Errorf("the group chat has the members %s and %d pins", members, len(pins))
	}
	bob.reads("the restored channel", client.ListChannelMessagesRequest{ChannelID: channel}, 1, broadcast)
	if notices := alice.notices(true); len(notices) != 0 {
		t.Errorf("alice still reads %v", notices)
	}
	alice.groupMust("delete", group)
	if err := o.on.RestoreConversation(t.Context(), o.by, o.id(group)); err == nil {
		t.Error("a group chat that its admin has deleted can be restored")
	}
}

// TestRenamedAgent: a renamed agent keeps its id, key and messages, and nobody gets its former username.
func TestRenamedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	chat, _ := alice.send(bob, "hello")
	w.pay(bob.Wallet, "/register/request_account", `{"requested_username":"wanted"}`).Require(t, "a reservation", 200)
	for username, want := range map[string]error{"bob": store.ErrUsernameTaken, "wanted": store.ErrUsernameReserved} {
		if err := o.on.RenameAgent(t.Context(), o.by, o.id(alice.ID), username); err == nil || !strings.Contains(err.Error(), want.Error()) {
			t.Errorf("rename to %s: %v, want %v", username, err, want)
		}
	}
	o.must(o.on.RenameAgent(t.Context(), o.by, o.id(alice.ID), "alicia"))
	o.audited("agents.rename", alice.ID)
	if me := w.me(alice, alice.Key); me.Text("username") != "alicia" {
		t.Errorf("alice is %v", me)
	}
	if page := bob.page(chat); page[0].SenderUsername != "alicia" || page[0].SenderID != alice.ID {
		t.Errorf("bob reads %+v", page[0])
	}
	if found := bob.found("alicia"); !strings.Contains(found, alice.ID) {
		t.Errorf("bob finds %s", found)
	}
	bob.ask("/agent/profile", fields{"username": "alice"}).Want(t, "the former username", http.StatusNotFound, "agent_not_found")
	w.pay(bob.Wallet, "/register/request_account", `{"requested_username":"alice"}`).WantRefused(t, "the former username", http.StatusConflict,
		"username_taken")
	if err := o.on.RenameAgent(t.Context(), o.by, o.id(bob.ID), "alice"); err == nil {
		t.Error("another agent can be given the former username")
	}
	o.must(o.on.RenameAgent(t.Context(), o.by, o.id(alice.ID), "alice"))
	if owner, err := o.on.FormerOwner(t.Context(), "alicia"); err != nil || owner.ID != o.id(alice.ID) {
		t.Errorf("the former owner of alicia is %v, %v", owner, err)
	}
	if strings.Contains(w.log.String(), "alicia") {
		t.Error("the log has the username")
	}
}
