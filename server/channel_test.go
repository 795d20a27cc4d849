package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const noChannel = "channel_01k70taybbefyb5rymrpvaf640" // unknown, well formed

// fields is a request's body.
type fields map[string]any

// ask posts a request with a new payment; body may hold agents, who stand for their ids.
func (a *agent) ask(path string, body fields) testkit.Reply {
	a.w.T.Helper()
	return a.w.pay(a.Wallet, path, body.json(a.w.T), "X-API-KEY", a.Key)
}

func (f fields) json(t testing.TB) string {
	t.Helper()
	for name, value := range f {
		switch value := value.(type) {
		case *agent:
			f[name] = value.ID
		case []*agent:
			ids := make([]string, len(value))
			for i, one := range value {
				ids[i] = one.ID
			}
			f[name] = ids
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// must posts a request that has to succeed.
func (a *agent) must(path string, body fields) {
	a.w.T.Helper()
	a.ask(path, body).Require(a.w.T, fmt.Sprintf("%s posts to %s", a.Name, path), 200)
}

// channel creates a channel and returns its id.
func (a *agent) channel(name string) string {
	a.w.T.Helper()
	created, err := a.CreateChannelWithResponse(a.w.T.Context(), client.CreateChannelRequest{Name: name})
	testkit.Require200(a.w.T, a.Name+" creates a channel", created, err)
	return created.JSON200.ChannelID
}

// broadcast sends to a channel and returns the message's id.
func (a *agent) broadcast(channel, content string) string {
	a.w.T.Helper()
	a.w.Secret(content)
	sent, err := a.SendChannelMessageWithResponse(a.w.T.Context(), client.SendChannelMessageRequest{ChannelID: channel, Content: content})
	if err != nil || sent.JSON200 == nil || !sent.JSON200.Success {
		a.w.T.Fatalf("%s sends to the channel: %v %s", a.Name, err, sent.Body)
	}
	return sent.JSON200.MessageID
}

// seesChannel compares the channel's info with want, apart from the time.
func (a *agent) seesChannel(when string, want client.Channel) {
	a.w.T.Helper()
	info, err := a.GetChannelWithResponse(a.w.T.Context(), client.ChannelRequest{ChannelID: want.ChannelID})
	testkit.Require200(a.w.T, fmt.Sprintf("%s, %s looks at the channel", when, a.Name), info, err)
	if diff := cmp.Diff(&want, info.JSON200, cmpopts.IgnoreFields(client.Channel{}, "CreatedAt")); diff != "" {
		a.w.T.Errorf("%s, the channel as %s sees it (-want +got):\n%s", when, a.Name, diff)
	}
	if age := time.Since(time.UnixMilli(int64(info.JSON200.CreatedAt * 1000))); age < -time.Second || age > 10*time.Minute {
		a.w.T.Errorf("%s, the channel says it was created %v ago", when, age)
	}
}

// reads compares a page of the channel's messages, as ids, with want.
func (a *agent) reads(when string, request client.ListChannelMessagesRequest, total int64, want ...string) []client.Message {
	a.w.T.Helper()
	read, err := a.ListChannelMessagesWithResponse(a.w.T.Context(), request)
	testkit.Require200(a.w.T, fmt.Sprintf("%s, %s reads the channel", when, a.Name), read, err)
	var got []string
	for _, message := range read.JSON200.Messages {
		got = append(got, message.MessageID)
	}
	if diff := cmp.Diff(want, got); diff != "" || read.JSON200.Total != total {
		a.w.T.Errorf("%s, %s reads a total of %d, want %d, and the messages (-want +got):\n%s", when, a.Name, read.JSON200.Total, total, diff)
	}
	return read.JSON200.Messages
}

// belongsTo compares the channels that the agent's own account names.
func (a *agent) belongsTo(when string, subscribed, administered []string) {
	a.w.T.Helper()
	me, err := a.GetOwnAgentWithResponse(a.w.T.Context())
	testkit.Require200(a.w.T, fmt.Sprintf("%s, %s sees itself", when, a.Name), me, err)
	if diff := cmp.Diff(subscribed, me.JSON200.SubscribedChannelIds, cmpopts.EquateEmpty()); diff != "" || me.JSON200.SubscribedChannelCount != int64(len(subscribed)) {
		a.w.T.Errorf("%s, %s counts %d subscribed channels (-want +got):\n%s", when, a.Name, me.JSON200.SubscribedChannelCount, diff)
	}
	if diff := cmp.Diff(administered, me.JSON200.AdministeredChannelIds, cmpopts.EquateEmpty()); diff != "" {
		a.w.T.Errorf("%s, the channels that %s administers (-want +got):\n%s", when, a.Name, diff)
	}
}

// checkMemberCounts recounts every conversation's members.
func (w *world) checkMemberCounts(when string) {
	w.T.Helper()
	if wrong := w.Count(`SELECT count(*) FROM conversations c
		WHERE member_count <> (SELECT count(*) FROM memberships m WHERE m.conversation_id = c.id AND m.status = 'member')`); wrong != 0 {
		w.T.Errorf("%s, %d conversations count their members wrong", when, wrong)
	}
}

// subscriptions is everything in memberships and conversations, versions included: equal texts mean that no row was touched.
func (w *world) subscriptions() (text string) {
	w.T.Helper()
	w.Scan(`SELECT (SELECT string_agg(m::text || ' ' || m.xmin, E'\n' ORDER BY m::text) FROM memberships m) ||
		(SELECT string_agg(c::text || ' ' || c.xmin, E'\n' ORDER BY c::text) FROM conversations c)`, nil, &text)
	return text
}

// marker is the number of the message up to which an agent has read its only conversation.
func (w *world) marker(a *agent) int {
	w.T.Helper()
	return w.Count("SELECT read_number FROM memberships m JOIN agents a ON a.id = m.agent_id WHERE a.username = $1", a.Name)
}

// TestLifeOfAChannel: a channel is created, subscribed to, read and deleted.
func TestLifeOfAChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	oracle, reader, fan := w.agent("oracle"), w.agent("reader"), w.agent("fan")

	revenue := w.Revenue()
	created, err := oracle.CreateChannelWithResponse(ctx, client.CreateChannelRequest{Name: "Storm warnings", Description: new("For the Atlantic coast. 🌊")})
	if err != nil || created.JSON200 == nil || !created.JSON200.Success {
		t.Fatalf("oracle creates a channel: %v %s", err, created.Body)
	}
	if got := w.Revenue() - revenue; got != 500_000 {
		t.Errorf("a channel brought %d, want 500000", got)
	}
	channel := created.JSON200.ChannelID
	public := client.Channel{ChannelID: channel, Name: "Storm warnings", Description: new("For the Atlantic coast. 🌊"), IsDiscoverable: true}
	inside := public
	inside.AdminID = &oracle.ID
	reader.seesChannel("after its creation", public)
	oracle.seesChannel("after its creation", inside)
	oracle.belongsTo("after the creation", nil, []string{channel})

	first := oracle.broadcast(channel, "11 Bft off Cabo da Roca.")
	for _, when := range []string{"the first time", "a second time"} {
		subscribed, err := reader.SubscribeChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
		if err != nil || subscribed.JSON200 == nil || !subscribed.JSON200.Success {
			t.Fatalf("reader subscribes %s: %v %s", when, err, subscribed.Body)
		}
	}
	fan.must("/channel/subscribe", fields{"channel_id": channel})
	inside.SubscriberCount, public.SubscriberCount = 2, 2
	reader.seesChannel("subscribed", inside)
	reader.belongsTo("subscribed", []string{channel}, nil)

	second := oracle.broadcast(channel, "The wind turns west.")
	third := oracle.broadcast(channel, "All clear <b>now</b>.")
	messages := reader.reads("subscribed after the first message", client.ListChannelMessagesRequest{ChannelID: channel}, 3, third, second, first)
	want := client.Message{MessageID: third, SenderID: oracle.ID, SenderUsername: "oracle", Content: "All clear <b>now</b>.", ContentType: "text/plain",
		Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}}
	if diff := cmp.Diff(want, messages[0], cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
		t.Errorf("the newest message (-want +got):\n%s", diff)
	}
	reader.reads("by pages", client.ListChannelMessagesRequest{ChannelID: channel, N: new(int64(2)), Page: new(int64(2))}, 3, first)
	reader.reads("before a message", client.ListChannelMessagesRequest{ChannelID: channel, BeforeMessageID: &second}, 3, first)
	oracle.reads("as its admin without a subscription", client.ListChannelMessagesRequest{ChannelID: channel}, 3, third, second, first)
	if w.marker(reader) != 3 || w.marker(fan) != 1 {
		t.Errorf("the markers stand at %d and %d, want 3 for who has read and 1 for who subscribed after one message", w.marker(reader), w.marker(fan))
	}

	deleted, err := oracle.DeleteChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
	if err != nil || deleted.JSON200 == nil || !deleted.JSON200.Success {
		t.Fatalf("oracle deletes the channel: %v %s", err, deleted.Body)
	}
	oracle.belongsTo("after the end", nil, nil)
	fan.belongsTo("after the end", nil, nil)
	if kept := w.Count("SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.deleted_at IS NOT NULL"); kept != 3 {
		t.Errorf("%d of the deleted channel's messages are kept, want all 3", kept)
	}
	hidden, err := oracle.CreateChannelWithResponse(ctx, client.CreateChannelRequest{Name: "Storms", IsDiscoverable: new(false)})
	testkit.Require200(t, "oracle creates a hidden channel of the same name", hidden, err)
	fan.seesChannel("not discoverable and without a description", client.Channel{ChannelID: hidden.JSON200.ChannelID, Name: "Storms"})
}

// TestChannelAdminSubscribes: the admin is a subscriber like anybody, if it wants to be.
func TestChannelAdminSubscribes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	oracle := w.agent("oracle")
	channel := oracle.channel("Storm warnings")
	oracle.must("/channel/subscribe", fields{"channel_id": channel})
	oracle.seesChannel("subscribed too", client.Channel{ChannelID: channel, Name: "Storm warnings", AdminID: &oracle.ID, IsDiscoverable: true, SubscriberCount: 1})
	oracle.belongsTo("subscribed too", []string{channel}, []string{channel})
	message := oracle.broadcast(channel, "I hear myself.")
	if got := w.marker(oracle); got != 1 {
		t.Errorf("the admin's marker stands at %d after its own message, want 1: own messages are never unread", got)
	}
	oracle.must("/channel/unsubscribe", fields{"channel_id": channel})
	oracle.belongsTo("unsubscribed", nil, []string{channel})
	oracle.reads("unsubscribed again", client.ListChannelMessagesRequest{ChannelID: channel, N: new(int64(1))}, 1, message)
}

// TestEditChannel: an edit changes what it names, and nothing else.
func TestEditChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	oracle, reader := w.agent("oracle"), w.agent("reader")
	channel := oracle.channel("Storm warnings")
	oracle.must("/channel/edit", fields{"channel_id": channel, "description": "For the Atlantic coast. 🌊"})
	edited, err := oracle.EditChannelWithResponse(t.Context(), client.EditChannelRequest{ChannelID: channel, Name: new("Storms"), IsDiscoverable: new(false)})
	if err != nil || edited.JSON200 == nil || !edited.JSON200.Success {
		t.Fatalf("oracle edits the channel: %v %s", err, edited.Body)
	}
	want := client.Channel{ChannelID: channel, Name: "Storms", Description: new("For the Atlantic coast. 🌊")}
	reader.seesChannel("edited", want)
	oracle.must("/channel/edit", fields{"channel_id": channel, "description": ""})
	want.Description = new("")
	reader.seesChannel("its description taken away", want)
}

// TestChannelSubscribers: a removed subscriber can subscribe again, a banned one only after it was unbanned.
func TestChannelSubscribers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	oracle, reader, fan := w.agent("oracle"), w.agent("reader"), w.agent("fan")
	channel := oracle.channel("Storms")
	fan.must("/channel/subscribe", fields{"channel_id": channel})
	reader.must("/channel/subscribe", fields{"channel_id": channel})
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
	reader.must("/channel/subscribe", fields{"channel_id": channel})
	edit("ban_agent_ids", reader, reader)
	edit("ban_agent_ids", reader)
	reader.seesChannel("banned", public)
	reader.belongsTo("banned", nil, nil)
	reader.must("/channel/unsubscribe", fields{"channel_id": channel}) // changes nothing
	reader.ask("/channel/subscribe", fields{"channel_id": channel}).Want(t, "a banned agent that unsubscribed subscribes", 403, "banned")
	edit("remove_subscriber_ids", reader) // no subscriber: a ban stays
	reader.ask("/channel/subscribe", fields{"channel_id": channel}).Want(t, "a banned agent that was removed subscribes", 403, "banned")
	edit("unban_agent_ids", reader, fan, oracle) // two of them are not banned
	reader.belongsTo("let in again", nil, nil)
	reader.must("/channel/subscribe", fields{"channel_id": channel})
	reader.seesChannel("subscribed again", inside)
	for range 2 {
		reader.must("/channel/unsubscribe", fields{"channel_id": channel})
	}
	reader.seesChannel("unsubscribed", public)
	w.checkMemberCounts("after all that")
}

// refusal is a call that must be refused.
type refusal struct {
	name   string
	who    *agent
	path   string
	body   fields
	status int
	code   client.ErrorCode
}

// refuses makes calls, each with a good payment of its own. None may be charged or change anything.
func (w *world) refuses(refusals []refusal) {
	w.T.Helper()
	state, messages := w.subscriptions(), w.Count(`SELECT count(*) FROM messages`)
	revenue, settles := w.Revenue(), w.settles.Load()
	for _, test := range refusals {
		a := test.who.ask(test.path, test.body)
		if a.Status != test.status || a.Code != string(test.code) || a.Charged || a.Header.Get(x402.HeaderPaymentResponse) != "" {
			w.T.Errorf("%s: %v, want %d %s, not charged", test.name, a, test.status, test.code)
		}
	}
	if w.Revenue() != revenue || w.settles.Load() != settles {
		w.T.Errorf("refusals brought %d, and /settle was called %d times", w.Revenue()-revenue, w.settles.Load()-settles)
	}
	if diff := cmp.Diff(state, w.subscriptions()); diff != "" || w.Count(`SELECT count(*) FROM messages`) != messages {
		w.T.Errorf("refusals changed something (-before +after):\n%s", diff)
	}
}

// TestChannelRefusals: every no comes before money moves, and changes nothing.
func TestChannelRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, subscriber, banned, stranger := w.agent("admin"), w.agent("subscriber"), w.agent("banned"), w.agent("stranger")
	channel, ended := admin.channel("open"), admin.channel("ended")
	for _, id := range []string{channel, ended} {
		subscriber.must("/channel/subscribe", fields{"channel_id": id})
		admin.must("/channel/edit", fields{"channel_id": id, "ban_agent_ids": []*agent{banned}})
	}
	admin.must("/channel/delete", fields{"channel_id": ended})
	_, elsewhere := admin.send(subscriber, "a message of another conversation")
	tests := []refusal{
		{"create without a name", stranger, "/channel/create", fields{"description": "x"}, 400, client.ErrorCodeInvalidRequest},
		{"create with an empty name", stranger, "/channel/create", fields{"name": ""}, 400, client.ErrorCodeInvalidRequest},
		{"create with a long name", stranger, "/channel/create", fields{"name": strings.Repeat("ü", 65)}, 400, client.ErrorCodeInvalidRequest},
		{"a chat's id", admin, "/channel/info", fields{"channel_id": noChat}, 400, client.ErrorCodeInvalidRequest},
		{"send nothing", admin, "/channel/send", fields{"channel_id": channel, "content": ""}, 400, client.ErrorCodeInvalidRequest},
		{"read as a stranger", stranger, "/channel/messages", fields{"channel_id": channel}, 403, client.ErrorCodeNotSubscriber},
		{"read as a banned agent", banned, "/channel/messages", fields{"channel_id": channel}, 403, client.ErrorCodeBanned},
		{"read before an unknown message", subscriber, "/channel/messages", fields{"channel_id": channel, "before_message_id": noMessage}, 404, client.ErrorCodeMessageNotFound},
		{"read before a strange message", subscriber, "/channel/messages", fields{"channel_id": channel, "before_message_id": elsewhere}, 404, client.ErrorCodeMessageNotFound},
		{"subscribe as a banned agent", banned, "/channel/subscribe", fields{"channel_id": channel}, 403, client.ErrorCodeBanned},
		{"edit nothing", admin, "/channel/edit", fields{"channel_id": channel}, 400, client.ErrorCodeInvalidRequest},
		{"remove and ban", admin, "/channel/edit", fields{"channel_id": channel, "remove_subscriber_ids": []*agent{subscriber}, "ban_agent_ids": []*agent{stranger, subscriber}}, 400, client.ErrorCodeInvalidRequest},
		{"remove and unban", admin, "/channel/edit", fields{"channel_id": channel, "remove_subscriber_ids": []*agent{banned}, "unban_agent_ids": []*agent{banned}}, 400, client.ErrorCodeInvalidRequest},
		{"ban and unban", admin, "/channel/edit", fields{"channel_id": channel, "ban_agent_ids": []*agent{banned}, "unban_agent_ids": []*agent{banned}}, 400, client.ErrorCodeInvalidRequest},
		{"remove the admin", admin, "/channel/edit", fields{"channel_id": channel, "name": "changed", "remove_subscriber_ids": []*agent{subscriber, admin}}, 409, client.ErrorCodeAdminMustTransfer},
		{"ban the admin", admin, "/channel/edit", fields{"channel_id": channel, "unban_agent_ids": []*agent{banned}, "ban_agent_ids": []*agent{admin}}, 409, client.ErrorCodeAdminMustTransfer},
		{"transfer to oneself", admin, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": admin}, 400, client.ErrorCodeInvalidRequest},
		{"transfer to nobody", admin, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": noAgent}, 404, client.ErrorCodeAgentNotFound},
		{"transfer to a banned agent", admin, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": banned, "message": "yours"}, 403, client.ErrorCodeBanned},
		{"transfer with an empty message", admin, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": subscriber, "message": ""}, 400, client.ErrorCodeInvalidRequest},
	}
	for _, list := range []string{"remove_subscriber_ids", "ban_agent_ids", "unban_agent_ids"} {
		body := fields{"channel_id": channel, "name": "changed", "description": "changed", "is_discoverable": false, "ban_agent_ids": []*agent{stranger}, "remove_subscriber_ids": []*agent{subscriber}}
		body[list] = []string{noAgent}
		tests = append(tests, refusal{"edit with nobody in " + list, admin, "/channel/edit", body, 404, client.ErrorCodeAgentNotFound})
	}
	w.refuses(append(tests, refusalsOfChannel(channel, ended, admin, subscriber, banned, stranger)...))
	// What belongs together goes together: a good edit of everything.
	admin.must("/channel/edit", fields{"channel_id": channel, "name": "changed", "remove_subscriber_ids": []*agent{subscriber, stranger}, "ban_agent_ids": []*agent{}, "unban_agent_ids": []*agent{banned}})
	banned.must("/channel/subscribe", fields{"channel_id": channel})
	stranger.seesChannel("edited", client.Channel{ChannelID: channel, Name: "changed", IsDiscoverable: true, SubscriberCount: 1})
}

// refusalsOfChannel are the refusals of each operation on a channel: by others than the admin, of a deleted and of an unknown channel.
func refusalsOfChannel(channel, ended string, admin, subscriber, banned, stranger *agent) (all []refusal) {
	bodies := map[string]fields{
		"/channel/info": {}, "/channel/messages": {}, "/channel/subscribe": {}, "/channel/unsubscribe": {}, "/channel/delete": {},
		"/channel/send": {"content": "hello"}, "/channel/edit": {"name": "changed"}, "/channel/transfer": {"new_admin_agent_id": stranger},
	}
	for path, rest := range bodies {
		of := func(id string) fields {
			body := fields{"channel_id": id}
			for name, value := range rest {
				body[name] = value
			}
			return body
		}
		for _, caller := range []*agent{admin, subscriber, banned, stranger} {
			all = append(all, refusal{path + " of a deleted channel by " + caller.Name, caller, path, of(ended), 410, client.ErrorCodeDeleted})
			adminOnly := path == "/channel/delete" || path == "/channel/send" || path == "/channel/edit" || path == "/channel/transfer"
			if adminOnly && caller != admin {
				all = append(all, refusal{path + " by " + caller.Name, caller, path, of(channel), 403, client.ErrorCodeNotAdmin})
			}
		}
		all = append(all, refusal{path + " of no channel", stranger, path, of(noChannel), 404, client.ErrorCodeChannelNotFound})
	}
	return all
}

func TestTransferChannel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	channel := alice.channel(`The "big" channel`)
	carol.must("/channel/subscribe", fields{"channel_id": channel})
	first := alice.broadcast(channel, "From alice.")

	// Bob is a stranger there; alice is not subscribed.
	w.Secret("Take good care of it.")
	transferred, err := alice.TransferChannelWithResponse(ctx, client.TransferChannelRequest{ChannelID: channel, NewAdminAgentID: bob.ID, Message: new("Take good care of it.")})
	if err != nil || transferred.JSON200 == nil || !transferred.JSON200.Success {
		t.Fatalf("alice transfers the channel to bob: %v %s", err, transferred.Body)
	}
	alice.belongsTo("after the transfer to bob", []string{channel}, nil)
	bob.belongsTo("after the transfer to bob", nil, []string{channel})
	bob.seesChannel("after the transfer to bob", client.Channel{ChannelID: channel, Name: `The "big" channel`, AdminID: &bob.ID, SubscriberCount: 2, IsDiscoverable: true})
	alice.ask("/channel/send", fields{"channel_id": channel, "content": "still me?"}).Want(t, "the former admin sends", 403, "not_admin")
	second := bob.broadcast(channel, "From bob.")
	messages := alice.reads("as the former admin", client.ListChannelMessagesRequest{ChannelID: channel}, 2, second, first)
	if messages[0].SenderUsername != "bob" || messages[1].SenderUsername != "alice" {
		t.Errorf("the messages were sent by %s and %s, want bob and alice: each by the admin at its time", messages[0].SenderUsername, messages[1].SenderUsername)
	}
	me, err := bob.GetOwnAgentWithResponse(ctx)
	if err != nil || me.JSON200 == nil || len(me.JSON200.ChatIds) != 1 {
		t.Fatalf("bob sees the chats that he got: %v %s", err, me.Body)
	}
	notes, err := bob.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: me.JSON200.ChatIds[0]})
	if err != nil || notes.JSON200 == nil || len(notes.JSON200.Messages) != 1 {
		t.Fatalf("bob reads alice's note: %v %s", err, notes.Body)
	}
	note := notes.JSON200.Messages[0]
	for _, text := range []string{`The "big" channel`, channel, "Take good care of it."} {
		if note.SenderID != alice.ID || !strings.Contains(note.Content, text) {
			t.Errorf("the note of %s says %q, want alice to name %q", note.SenderUsername, note.Content, text)
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
	carol.must("/channel/edit", fields{"channel_id": channel, "ban_agent_ids": []*agent{alice, bob}})
	carol.ask("/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": bob}).Want(t, "back to bob, who is banned now", 403, "banned")
	w.checkMemberCounts("after the transfers")
}

// TestSendingTouchesNoSubscriber: a message to 2,000 subscribers writes the channel's row and the message, and of the
// subscriptions at most the sender's own.
func TestSendingTouchesNoSubscriber(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.agent("admin")
	channel := admin.channel("busy")
	w.Exec(`
		WITH crowd AS (
			INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			SELECT gen_random_uuid(), 'subscriber_' || i, '', true, sha256(CAST(CAST(i AS text) AS bytea)), now() FROM generate_series(1, 2000) i RETURNING id
		), subscribed AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT c.id, crowd.id, 'member', 0, 0, now() FROM conversations c, crowd WHERE c.kind = 'channel'
		)
		UPDATE conversations SET member_count = 2000 WHERE kind = 'channel'`)
	touched := func(send func()) int {
		w.Exec(`CREATE TABLE before AS SELECT m.*, m.xmin AS version, m.ctid AS place FROM memberships m`)
		defer w.Exec(`DROP TABLE before`)
		send()
		return w.Count(`SELECT count(*) FROM memberships m FULL JOIN before b USING (conversation_id, agent_id)
			WHERE m.xmin IS DISTINCT FROM b.version OR m.ctid IS DISTINCT FROM b.place`)
	}
	if n := touched(func() { admin.broadcast(channel, "to all of you") }); n != 0 {
		t.Errorf("a message to 2,000 subscribers touched %d subscriptions, want none", n)
	}
	admin.must("/channel/subscribe", fields{"channel_id": channel})
	if n := touched(func() { admin.broadcast(channel, "and to myself") }); n != 1 {
		t.Errorf("a message of an admin that is subscribed touched %d subscriptions, want its own", n)
	}
	if n := w.Count(`SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id WHERE c.last_number - m.read_number - m.unread_own = 2`); n != 2000 {
		t.Errorf("%d subscribers have two unread messages, want 2000", n)
	}
}

// racer is one call of a race.
type racer struct {
	who  *agent
	path string
	body fields
}

// atOnce sends calls at the same time, each paid for before, and returns their replies.
func (w *world) atOnce(racers ...racer) []testkit.Reply {
	w.T.Helper()
	bodies, payments, replies := make([]string, len(racers)), make([]string, len(racers)), make([]testkit.Reply, len(racers))
	for i, r := range racers {
		bodies[i], payments[i] = r.body.json(w.T), w.sign(r.who.Wallet, r.path)
	}
	var running sync.WaitGroup
	for i, r := range racers {
		running.Go(func() {
			var err error
			replies[i], err = w.try(http.MethodPost, r.path, bodies[i], "X-API-KEY", r.who.Key, x402.HeaderPaymentSignature, payments[i])
			if err != nil {
				w.T.Errorf("%s of %s: %v", r.path, r.who.Name, err)
			}
		})
	}
	running.Wait()
	return replies
}

// race sends calls at the same time, and lets no settlement end before all have begun: the dry run of each has succeeded before any of
// them has its effect.
func (w *world) race(racers ...racer) []testkit.Reply {
	w.T.Helper()
	var arrived atomic.Int64
	all := make(chan struct{})
	mend := w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" {
			if arrived.Add(1) == int64(len(racers)) {
				close(all)
			}
			select {
			case <-all:
			case <-time.After(20 * time.Second):
				w.T.Error("not all requests of the race came as far as their settlement")
			}
		}
		return false
	})
	defer mend()
	return w.atOnce(racers...)
}

func TestBanAgainstSubscribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, eager := w.agent("admin"), w.agent("eager")
	for round := range 6 {
		channel := admin.channel(fmt.Sprint("round ", round))
		replies := w.race(
			racer{admin, "/channel/edit", fields{"channel_id": channel, "ban_agent_ids": []*agent{eager}}},
			racer{eager, "/channel/subscribe", fields{"channel_id": channel}},
		)
		if replies[0].Status != 200 || (replies[1].Status != 200 && (replies[1].Code != "banned" || !replies[1].Charged)) {
			t.Errorf("the ban returns %v, the subscription %v; want 200, and 200 or a charged 403 banned", replies[0], replies[1])
		}
		if a := eager.ask("/channel/messages", fields{"channel_id": channel}); a.Code != "banned" {
			t.Errorf("whoever came first, the ban holds; reading returns %v", a)
		}
	}
	if n := w.Count("SELECT count(*) FROM memberships WHERE status = 'member'"); n != 0 {
		t.Errorf("%d banned agents are subscribers", n)
	}
	w.checkMemberCounts("after bans against subscriptions")
}

func TestTransferAgainstBan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	for round := range 6 {
		channel := alice.channel(fmt.Sprint("round ", round))
		bob.must("/channel/subscribe", fields{"channel_id": channel})
		replies := w.race(
			racer{alice, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": bob, "message": "yours"}},
			racer{alice, "/channel/edit", fields{"channel_id": channel, "ban_agent_ids": []*agent{bob}}},
			racer{bob, "/channel/unsubscribe", fields{"channel_id": channel}},
		)
		transferred := replies[0].Status == 200 && replies[1].Code == "not_admin"
		banned := replies[0].Code == "banned" && replies[1].Status == 200
		if transferred == banned || replies[2].Status != 200 {
			t.Errorf("transfer, ban and unsubscription return %v, %v and %v; want one of the first two, and the last", replies[0], replies[1], replies[2])
		}
	}
	if n := w.Count("SELECT count(*) FROM conversations c JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = c.admin_id WHERE m.status = 'banned'"); n != 0 {
		t.Errorf("%d channels have a banned admin", n)
	}
	transferred := w.Count("SELECT count(*) FROM conversations c JOIN agents a ON a.id = c.admin_id WHERE c.kind = 'channel' AND a.username = 'bob'")
	if notes := w.Count("SELECT count(*) FROM messages"); notes != transferred {
		t.Errorf("%d transfers sent %d notes", transferred, notes)
	}
	w.checkMemberCounts("after transfers against bans")
}

func TestDeleteAgainstSends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, bob := w.agent("admin"), w.agent("bob")
	for round := range 3 {
		channel := admin.channel(fmt.Sprint("round ", round))
		calls := []racer{{admin, "/channel/delete", fields{"channel_id": channel}}, {bob, "/channel/subscribe", fields{"channel_id": channel}},
			{admin, "/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": bob}}}
		for i := range 6 {
			calls = append(calls, racer{admin, "/channel/send", fields{"channel_id": channel, "content": fmt.Sprint("last words ", i)}})
		}
		sent := 0
		replies := w.race(calls...)
		for i, a := range replies {
			switch {
			case a.Status == 200:
				if calls[i].path == "/channel/send" {
					sent++
				}
			case (a.Code == "deleted" || a.Code == "not_admin") && a.Charged:
			default:
				t.Errorf("%s in the race returns %v, want 200 or a charged 410 or 403", calls[i].path, a)
			}
		}
		if deleted, transferred := replies[0].Status == 200, replies[2].Status == 200; deleted == transferred {
			t.Errorf("deleting returns %v and transferring %v, want one of them", replies[0], replies[2])
		}
		if n := w.Count(fmt.Sprintf(`SELECT last_number FROM conversations WHERE name = 'round %d'`, round)); n != sent {
			t.Errorf("%d sends succeeded, the channel counts %d messages", sent, n)
		}
	}
	if n := w.Count(`SELECT count(*) FROM conversations c WHERE last_number <> (SELECT count(*) FROM messages m WHERE m.conversation_id = c.id)`); n != 0 {
		t.Errorf("%d channels have gaps in their numbers", n)
	}
	if n := w.Count(`SELECT count(*) FROM conversations c JOIN messages m ON m.conversation_id = c.id WHERE m.created_at > c.deleted_at`); n != 0 {
		t.Errorf("%d messages were sent to a deleted channel", n)
	}
	w.checkMemberCounts("after deletions")
}

// TestSubscribersComeAndGo: many subscribe, unsubscribe, are removed, banned and let in at once; the count stays right.
func TestSubscribersComeAndGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	admin := w.agent("admin")
	channel := admin.channel("door")
	crowd := make([]*agent, 6)
	for i := range crowd {
		crowd[i] = w.agent(fmt.Sprintf("agent_%d", i))
	}
	everybody := client.AgentIDs{}
	for _, one := range crowd {
		everybody = append(everybody, one.ID)
	}
	var group sync.WaitGroup
	for i, one := range crowd {
		group.Go(func() {
			for n := range 8 {
				if (n+i)%3 == 2 {
					left, err := one.UnsubscribeChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
					if err != nil || left.JSON200 == nil {
						t.Errorf("%s unsubscribes: %v %s", one.Name, err, left.Body)
					}
					continue
				}
				joined, err := one.SubscribeChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
				if err != nil || (joined.JSON200 == nil && (joined.JSONDefault == nil || joined.JSONDefault.Code != client.ErrorCodeBanned)) {
					t.Errorf("%s subscribes: %v %s, want 200 or 403 banned", one.Name, err, joined.Body)
				}
			}
		})
	}
	group.Go(func() {
		for n := range 6 {
			request := client.EditChannelRequest{ChannelID: channel}
			switch n % 3 {
			case 0:
				request.RemoveSubscriberIds = everybody
			case 1:
				request.BanAgentIds = everybody
			case 2:
				request.UnbanAgentIds = everybody
			}
			edited, err := admin.EditChannelWithResponse(ctx, request)
			if err != nil || edited.JSON200 == nil {
				t.Errorf("the admin edits: %v %s", err, edited.Body)
			}
		}
	})
	group.Wait()
	w.checkMemberCounts("after the crowd")
	for _, one := range crowd {
		one.must("/channel/subscribe", fields{"channel_id": channel}) // the last edit let everybody in
	}
	admin.seesChannel("with everybody in", client.Channel{ChannelID: channel, Name: "door", AdminID: &admin.ID, SubscriberCount: int64(len(crowd)), IsDiscoverable: true})
	w.checkMemberCounts("with everybody in")
}
