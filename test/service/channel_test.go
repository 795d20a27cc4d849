package service

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
)

// TestLifeOfAChannel: a channel is created, subscribed to, read, edited and deleted. Its admin need not subscribe.
func TestLifeOfAChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	oracle, reader, fan := w.agent("oracle"), w.agent("reader"), w.agent("fan")
	revenue := w.Revenue()
	created := oracle.must("/channel/create", fields{"name": "Storm warnings", "description": "For the Atlantic coast. 🌊"})
	if got := w.Revenue() - revenue; got != 500_000 {
		t.Errorf("a channel brought %d, want 500000", got)
	}
	channel := created.Field(t, "channel_id")
	of := fields{"channel_id": channel}
	description := new("For the Atlantic coast. 🌊")
	public := client.Channel{ChannelID: channel, Name: "Storm warnings", Description: description, IsDiscoverable: true}
	inside := public
	inside.AdminID = &oracle.ID
	reader.seesChannel("after its creation", public)
	oracle.seesChannel("after its creation", inside)
	oracle.belongsTo("after the creation", nil, []string{channel})

	first := oracle.broadcast(channel, "11 Bft off Cabo da Roca.")
	for _, subscriber := range []*agent{reader, reader, fan} { // twice changes nothing
		subscriber.must("/channel/subscribe", of)
	}
	inside.SubscriberCount, public.SubscriberCount = 2, 2
	reader.seesChannel("subscribed", inside)
	reader.belongsTo("subscribed", []string{channel}, nil)
	second, third := oracle.broadcast(channel, "The wind turns west."), oracle.broadcast(channel, "All clear <b>now</b>.")
	page := client.ListChannelMessagesRequest{ChannelID: channel}
	messages := reader.reads("subscribed after the first message", page, 3, third, second, first)
	want := client.Message{MessageID: third, SenderID: oracle.ID, SenderUsername: "oracle", Content: "All clear <b>now</b>.",
		ContentType: "text/plain", Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}}
	if diff := cmp.Diff(want, messages[0], cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
		t.Errorf("the newest message (-want +got):\n%s", diff)
	}
	oracle.reads("without a subscription", page, 3, third, second, first)
	if read, unread := w.unreadOf(reader), w.unreadOf(fan); read != 0 || unread != 2 {
		t.Errorf("%d and %d are unread, want 0 for who has read and 2 for who subscribed after one message", read, unread)
	}

	oracle.must("/channel/subscribe", of)
	inside.SubscriberCount = 3
	oracle.seesChannel("subscribed too", inside)
	oracle.belongsTo("subscribed too", []string{channel}, []string{channel})
	oracle.broadcast(channel, "I hear myself.")
	if got := w.unreadOf(oracle); got != 0 {
		t.Errorf("%d of the admin's own messages are unread to it", got)
	}
	oracle.must("/channel/unsubscribe", of)
	oracle.belongsTo("unsubscribed", nil, []string{channel})
	oracle.must("/channel/edit", fields{"channel_id": channel, "name": "Storms", "is_discoverable": false})
	public.Name, public.IsDiscoverable, public.AdminID = "Storms", false, &oracle.ID
	reader.seesChannel("edited", public)
	oracle.must("/channel/edit", fields{"channel_id": channel, "description": ""})
	public.Description = new("")
	reader.seesChannel("its description taken away", public)

	oracle.must("/channel/delete", of)
	oracle.belongsTo("after the end", nil, nil)
	fan.belongsTo("after the end", nil, nil)
	if kept := w.Count("SELECT count(*) FROM messages"); kept != 4 {
		t.Errorf("%d of the deleted channel's messages are kept, want all 4", kept)
	}
	hidden := oracle.must("/channel/create", fields{"name": "Storms", "is_discoverable": false}).Field(t, "channel_id")
	fan.seesChannel("not discoverable, of the same name, without a description", client.Channel{ChannelID: hidden, Name: "Storms"})
}

// TestChannelSubscribers: a removed subscriber can subscribe again, a banned one only after it was unbanned.
func TestChannelSubscribers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	oracle, reader, fan := w.agent("oracle"), w.agent("reader"), w.agent("fan")
	channel := oracle.channel("Storms")
	of := fields{"channel_id": channel}
	fan.must("/channel/subscribe", of)
	reader.must("/channel/subscribe", of)
	public := client.Channel{ChannelID: channel, Name: "Storms", IsDiscoverable: true, SubscriberCount: 1}
	inside := public
	inside.AdminID, inside.SubscriberCount = &oracle.ID, 2
	edit := func(list string, agents ...*agent) {
		t.Helper()
		oracle.must("/channel/edit", fields{"channel_id": channel, list: agents})
	}
	edit("remove_subscriber_ids", reader, reader)
	reader.seesChannel("removed", public)
	reader.belongsTo("removed", nil, nil)
	reader.must("/channel/subscribe", of)
	edit("ban_agent_ids", reader, reader)
	edit("ban_agent_ids", reader)
	reader.seesChannel("banned", public)
	reader.belongsTo("banned", nil, nil)
	reader.must("/channel/unsubscribe", of) // changes nothing
	reader.ask("/channel/subscribe", of).Want(t, "a banned agent that unsubscribed subscribes", 403, "banned")
	edit("remove_subscriber_ids", reader) // no subscriber: a ban stays
	reader.ask("/channel/subscribe", of).Want(t, "a banned agent that was removed subscribes", 403, "banned")
	edit("unban_agent_ids", reader, fan, oracle) // two of them are not banned
	reader.belongsTo("let in again", nil, nil)
	reader.must("/channel/subscribe", of)
	reader.seesChannel("subscribed again", inside)
	for range 2 {
		reader.must("/channel/unsubscribe", of)
	}
	reader.seesChannel("unsubscribed", public)
	w.checkConversations()
}

// TestTransferChannel: to anybody. The note names the channel; subscriptions stay as they are.
func TestTransferChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	const name, note = `The "big" channel`, "Take good care of it."
	channel := alice.channel(name)
	carol.must("/channel/subscribe", fields{"channel_id": channel})
	first := alice.broadcast(channel, "From alice.")

	// Bob is a stranger there; alice is not subscribed.
	w.Secret(note)
	alice.must("/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": bob, "message": note})
	alice.belongsTo("after the transfer to bob", []string{channel}, nil)
	bob.belongsTo("after the transfer to bob", nil, []string{channel})
	want := client.Channel{ChannelID: channel, Name: name, AdminID: &bob.ID, SubscriberCount: 2, IsDiscoverable: true}
	bob.seesChannel("after the transfer to bob", want)
	alice.ask("/channel/send", fields{"channel_id": channel, "content": "still me?"}).Want(t, "the former admin sends", 403, "not_admin")
	second := bob.broadcast(channel, "From bob.")
	messages := alice.reads("as the former admin", client.ListChannelMessagesRequest{ChannelID: channel}, 2, second, first)
	if senders := messages[0].SenderUsername + " " + messages[1].SenderUsername; senders != "bob alice" {
		t.Errorf("the messages were sent by %s, want bob and alice: each by the admin at its time", senders)
	}
	for _, text := range []string{name, channel, note} {
		if got := bob.noteFrom(alice); !strings.Contains(got, text) {
			t.Errorf("the note says %q, want it to name %q", got, text)
		}
	}

	// Bob subscribes and hands over to a subscriber: both stay what they are, and nobody gets a message.
	bob.must("/channel/subscribe", fields{"channel_id": channel})
	memberships := `SELECT sum(hashtext(m::text)) FROM memberships m`
	before := w.Count(memberships)
	bob.must("/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": carol})
	bob.belongsTo("after the transfer to carol", []string{channel}, nil)
	carol.belongsTo("after the transfer to carol", []string{channel}, []string{channel})
	if w.Count(memberships) != before || w.Count("SELECT count(*) FROM messages") != 3 {
		t.Error("a transfer between subscribers without a message changed subscriptions or sent something")
	}
	w.checkConversations()
}

// TestSendingTouchesNoSubscriber: a message to 2,000 subscribers writes the channel's row and the message, and of the
// subscriptions at most the sender's own.
func TestSendingTouchesNoSubscriber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.agent("alice")
	channel := admin.channel("busy")
	w.crowd("channel", 2000)
	touched := func(content string) int {
		w.Exec(`CREATE TABLE before AS SELECT m.*, m.xmin AS version, m.ctid AS place FROM memberships m`)
		defer w.Exec(`DROP TABLE before`)
		admin.broadcast(channel, content)
		return w.Count(`SELECT count(*) FROM memberships m FULL JOIN before b USING (conversation_id, agent_id)
			WHERE m.xmin IS DISTINCT FROM b.version OR m.ctid IS DISTINCT FROM b.place`)
	}
	if n := touched("to all of you"); n != 0 {
		t.Errorf("a message to 2,000 subscribers touched %d subscriptions, want none", n)
	}
	admin.must("/channel/subscribe", fields{"channel_id": channel})
	if n := touched("and to myself"); n != 1 {
		t.Errorf("a message of an admin that is subscribed touched %d subscriptions, want its own", n)
	}
	if n := w.Count(`SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id
		WHERE c.last_number - m.read_number - m.unread_own = 2`); n != 2000 {
		t.Errorf("%d subscribers have two unread messages, want 2000", n)
	}
}
