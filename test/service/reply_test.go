package service

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// answers maps the messages of a page to those that they answer.
func answers(messages []client.Message) map[string]string {
	found := map[string]string{}
	for _, message := range messages {
		if message.ReplyToMessageID != nil {
			found[message.MessageID] = *message.ReplyToMessageID
		}
	}
	return found
}

// TestReplies: an answer names its message wherever it is read: in lists, searches, unread messages and pins.
func TestReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	chat, asked := bob.send(alice, "Will it rain?")
	group, channel := alice.createGroup("planners", bob), alice.channel("news")
	bob.must("/channel/subscribe", fields{"channel_id": channel})
	inGroup, inChannel := bob.sendGroup(group, "Will it snow?"), alice.broadcast(channel, "Rain.")
	reply := func(path, to string) string {
		body := fields{"content": "an answer", "reply_to_message_id": to}
		switch path {
		case sendPath:
			body["recipient_agent_id"] = bob
		case "/chat/group/send":
			body["chat_id"] = group
		default:
			body["channel_id"] = channel
		}
		return alice.must(path, body).Field(t, "message_id")
	}
	want := map[string]map[string]string{chat: {reply(sendPath, asked): asked}, group: {reply("/chat/group/send", inGroup): inGroup},
		channel: {reply("/channel/send", inChannel): inChannel}}
	byVoucher := w.call(http.MethodPost, sendPath, fields{"recipient_agent_id": bob, "content": "an answer by voucher",
		"reply_to_message_id": asked}.json(t), "X-API-KEY", alice.Key, "PAYMENT-SIGNATURE",
		w.channelPayer(alice.Wallet).sign(sendPath, 5000, 50_000))
	want[chat][byVoucher.Field(t, "message_id")] = asked

	got := map[string]map[string]string{}
	for _, message := range bob.unread(nil, nil, new(false)).Messages {
		if message.ReplyToMessageID != nil {
			got[message.SourceID] = map[string]string{message.MessageID: *message.ReplyToMessageID}
		}
	}
	got[chat] = want[chat] // two answers; see the list
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unread messages (-want +got):\n%s", diff)
	}
	groups, err := bob.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: group})
	testkit.Require200(t, "the group chat", groups, err)
	channels, err := bob.ListChannelMessagesWithResponse(t.Context(), client.ListChannelMessagesRequest{ChannelID: channel})
	testkit.Require200(t, "the channel", channels, err)
	got = map[string]map[string]string{chat: answers(bob.page(chat)), group: answers(groups.JSON200.Messages),
		channel: answers(channels.JSON200.Messages)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lists (-want +got):\n%s", diff)
	}
	found, err := bob.SearchPrivateMessagesWithResponse(t.Context(), client.SearchPrivateMessagesRequest{ChatID: chat, Query: "answer"})
	testkit.Require200(t, "a search", found, err)
	for answer := range want[group] {
		alice.groupMust("pin", group, "message_id", answer)
	}
	got = map[string]map[string]string{chat: answers(found.JSON200.Messages), group: answers(bob.group(group).PinnedMessages),
		channel: want[channel]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a search, and pins (-want +got):\n%s", diff)
	}
}

// TestRefusedReplies: an answer to a message of another conversation, or of none, is not sent and costs nothing, however it is paid.
func TestRefusedReplies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	_, private := alice.send(bob, "hello")
	group, deleted := alice.createGroup("planners", bob), alice.createGroup("gone")
	inGroup, inDeleted := alice.sendGroup(group, "hello all"), alice.sendGroup(deleted, "hello")
	alice.groupMust("delete", deleted)
	channel, messages := alice.channel("news"), w.Count("SELECT count(*) FROM messages")
	const unknown = "msg_01k70tcepheh1anchsr54d0nyg"
	for _, test := range []struct {
		what, path, field string
		to, answers       any
		want              string
	}{
		{"a message of a group chat", sendPath, "recipient_agent_id", bob, inGroup, "404 message_not_found"},
		{"no chat yet", sendPath, "recipient_agent_id", carol, private, "404 message_not_found"},
		{"a private message", "/chat/group/send", "chat_id", group, private, "404 message_not_found"},
		{"an unknown message", "/channel/send", "channel_id", channel, unknown, "404 message_not_found"},
		{"a deleted group chat", "/chat/group/send", "chat_id", deleted, inDeleted, "410 deleted"},
		{"an unknown channel", "/channel/send", "channel_id", noChannel, unknown, "404 channel_not_found"},
		{"the id of a group chat", sendPath, "recipient_agent_id", bob, group, "400 invalid_request"},
		{"null", sendPath, "recipient_agent_id", bob, nil, "400 invalid_request"},
	} {
		refused := alice.ask(test.path, fields{test.field: test.to, "content": "an answer", "reply_to_message_id": test.answers})
		status, err := strconv.Atoi(test.want[:3])
		testkit.NoError(t, err)
		refused.WantRefused(t, test.what, status, test.want[4:])
	}
	voucher := w.channelPayer(alice.Wallet).sign(sendPath, 5000, 50_000)
	w.call(http.MethodPost, sendPath, fields{"recipient_agent_id": bob, "content": "x", "reply_to_message_id": inGroup}.json(t),
		"X-API-KEY", alice.Key, "PAYMENT-SIGNATURE", voucher).WantRefused(t, "by voucher", 404, "message_not_found")
	for _, answers := range []string{inGroup, private, unknown} { // it does not learn which messages are there
		carol.ask("/chat/group/send", fields{"chat_id": group, "content": "x", "reply_to_message_id": answers}).
			WantRefused(t, "who is not a member", 403, "not_member")
		carol.ask("/channel/send", fields{"channel_id": channel, "content": "x", "reply_to_message_id": answers}).
			WantRefused(t, "who is not the admin", 403, "not_admin")
	}
	if sent := w.Count("SELECT count(*) FROM messages") - messages; sent != 0 {
		t.Errorf("%d messages were sent", sent)
	}
}

// age makes messages older.
func (w *world) age(by time.Duration, messages ...string) {
	w.T.Helper()
	for _, content := range messages {
		w.Exec(`UPDATE messages SET created_at = created_at - CAST($1 AS interval) WHERE content = $2`, by, content)
	}
	w.Exec(`UPDATE conversations c SET created_at = (SELECT min(m.created_at) FROM messages m WHERE m.conversation_id = c.id)
		WHERE last_number > 0`)
}

// TestRepliesToRemovedMessages: an answer keeps the id of a message that the operator or retention removed.
func TestRepliesToRemovedMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	group := alice.createGroup("planners", bob)
	old, vile := bob.sendGroup(group, "an old question"), bob.sendGroup(group, "a vile question")
	answer := func(to string) string {
		return alice.must("/chat/group/send", fields{"chat_id": group, "content": "an answer", "reply_to_message_id": to}).Field(t, "message_id")
	}
	want := map[string]string{answer(old): old, answer(vile): vile}
	o.must(o.on.RemoveMessage(t.Context(), o.by, o.id(vile)))
	want[answer(vile)] = vile
	w.age(48*time.Hour, "an old question")
	if report, err := retention.Sweep(t.Context(), w.store, store.Retention{Messages: 24 * time.Hour}, false, nil); err != nil ||
		report.Messages != 1 {
		t.Fatalf("removed: %+v (%v), want one message", report, err)
	}
	read, err := bob.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: group})
	testkit.Require200(t, "the group chat", read, err)
	if diff := cmp.Diff(want, answers(read.JSON200.Messages)); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	bob.groupCall("send", group, "content", "too late", "reply_to_message_id", old).WantRefused(t, "an answer", 404, "message_not_found")
}
