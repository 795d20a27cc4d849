package service

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
)

// refusal is a call that must be refused, as "path field=value …", and the status, the code, and the ids that the message names. Names in
// values stand for ids, and fields in _ids are lists. "chat", which is the group chat or the channel, need not be written.
type refusal struct{ name, who, call, want string }

// refusals are what the rules of conversations and blocks refuse, in addition to TestAccess. All edits have parts that are good.
var refusals = []refusal{
	{"an unknown first member", "alice", "/chat/group/create name=x initial_member_ids=bob,nobody", "404 agent_not_found nobody"},
	{"a first member that blocks the caller", "alice", "/chat/group/create name=x initial_member_ids=bob,erin", "403 blocked erin"},
	{"a channel without a name", "dave", "/channel/create description=x", "400 invalid_request"},
	{"a channel with an empty name", "dave", "/channel/create name=", "400 invalid_request"},
	{"a channel with a long name", "dave", "/channel/create name=" + strings.Repeat("ü", 65), "400 invalid_request"},
	{"a chat's id for a channel's", "alice", "/channel/info channel_id=group", "400 invalid_request group"},
	{"an empty message", "alice", "/channel/send content=", "400 invalid_request"},
	{"an empty note", "alice", "/channel/transfer new_admin_agent_id=bob message=", "400 invalid_request"},

	{"to add and to remove", "alice", "/chat/group/edit add_member_ids=dave remove_member_ids=dave", "400 invalid_request dave"},
	{"to ban and to unban", "alice", "/chat/group/edit ban_agent_ids=dave unban_agent_ids=bob,dave", "400 invalid_request dave"},
	{"to unban and to add", "alice", "/chat/group/edit unban_agent_ids=carol add_member_ids=carol", "400 invalid_request carol"},
	{"to remove and to ban", "alice", "/channel/edit remove_subscriber_ids=bob ban_agent_ids=dave,bob", "400 invalid_request bob"},
	{"to remove and to unban", "alice", "/channel/edit remove_subscriber_ids=carol unban_agent_ids=carol", "400 invalid_request carol"},
	{"an edit of nothing", "alice", "/channel/edit", "400 invalid_request"},
	{"adding an unknown agent", "alice", "/chat/group/edit name=x add_member_ids=dave,nobody", "404 agent_not_found nobody"},
	{"removing an unknown agent", "alice", "/chat/group/edit name=x remove_member_ids=bob,nobody", "404 agent_not_found nobody"},
	{"banning an unknown agent", "alice", "/channel/edit name=x remove_subscriber_ids=bob ban_agent_ids=dave,nobody",
		"404 agent_not_found nobody"},
	{"unbanning an unknown agent", "alice", "/channel/edit name=x ban_agent_ids=dave unban_agent_ids=carol,nobody",
		"404 agent_not_found nobody"},
	{"adding a banned agent", "alice", "/chat/group/edit name=x add_member_ids=dave,carol", "403 banned carol"},
	{"adding one that blocks the caller", "alice", "/chat/group/edit remove_member_ids=bob add_member_ids=dave,erin", "403 blocked erin"},
	{"the admin removes itself", "alice", "/chat/group/edit name=x remove_member_ids=bob,alice", "409 admin_must_transfer"},
	{"the admin bans itself", "alice", "/channel/edit unban_agent_ids=carol ban_agent_ids=alice", "409 admin_must_transfer"},

	{"pinning a message of another group", "alice", "/chat/group/pin message_id=elsewhere", "404 message_not_found"},
	{"pinning an unknown message", "alice", "/chat/group/pin message_id=no_message", "404 message_not_found"},
	{"messages before one of another group", "bob", "/chat/group/messages before_message_id=elsewhere", "404 message_not_found"},
	{"messages before an unknown one", "bob", "/channel/messages before_message_id=no_message", "404 message_not_found"},

	{"a reaction to an unknown message", "alice", "/message/react message_id=no_message emoji=👍", "404 message_not_found"},
	{"removing a reaction to an unknown message", "alice", "/message/react/remove message_id=no_message", "404 message_not_found"},
	{"a reaction in a deleted group", "bob", "/message/react message_id=ended_message emoji=👍", "410 deleted"},
	{"removing a reaction in a deleted group", "dave", "/message/react/remove message_id=ended_message", "410 deleted"},
	{"a reaction that is no emoji", "alice", "/message/react message_id=message emoji=👍👍", "400 invalid_request"},

	{"a message to nobody", "alice", "/chat/private/send recipient_agent_id=nobody content=hello", "404 agent_not_found nobody"},
	{"a message to oneself", "alice", "/chat/private/send recipient_agent_id=alice content=hello", "400 invalid_request"},
	{"an unknown private chat", "alice", "/chat/private/info chat_id=no_chat", "404 chat_not_found"},
	{"an unknown username", "alice", "/agent/profile username=somebody", "404 agent_not_found"},
	{"blocking oneself", "alice", "/agent/block agent_id=alice", "400 invalid_request"},
	{"blocking nobody", "alice", "/agent/block agent_id=nobody", "404 agent_not_found nobody"},
	{"unblocking nobody", "alice", "/agent/unblock agent_id=nobody", "404 agent_not_found nobody"},
	{"blocking a chat", "alice", "/agent/block agent_id=no_chat", "400 invalid_request no_chat"},

	{"access to a group that is not there", "dave", "/chat/group/request_access chat_id=no_chat", "404 chat_not_found"},
	{"access to a private chat", "dave", "/chat/group/request_access chat_id=private", "404 chat_not_found"},
	{"access to a deleted group", "dave", "/chat/group/request_access chat_id=ended", "410 deleted"},

	{"the admin leaves itself the group", "alice", "/chat/group/leave successor_agent_id=alice", "400 successor_required"},
	{"an unknown successor", "alice", "/chat/group/leave successor_agent_id=nobody", "404 agent_not_found nobody"},
	{"a stranger as successor", "alice", "/chat/group/leave successor_agent_id=dave", "403 not_member"},
	{"a banned successor", "alice", "/chat/group/leave successor_agent_id=carol", "403 banned carol"},
	{"the only member leaves", "alice", "/chat/group/leave chat_id=lonely", "409 admin_alone"},
	{"the only member leaves it to a stranger", "alice", "/chat/group/leave chat_id=lonely successor_agent_id=bob", "409 admin_alone"},
	{"a group to nobody", "alice", "/chat/group/transfer new_admin_agent_id=nobody", "404 agent_not_found nobody"},
	{"a group to a banned agent", "alice", "/chat/group/transfer new_admin_agent_id=carol", "403 banned carol"},
	{"a channel to nobody", "alice", "/channel/transfer new_admin_agent_id=nobody", "404 agent_not_found nobody"},
	{"a channel to a banned agent", "alice", "/channel/transfer new_admin_agent_id=carol message=yours", "403 banned carol"},
}

// conversationCalls are calls of the operations on one group chat or channel, good ones.
var conversationCalls = []string{
	"/chat/group/info", "/chat/group/messages", "/chat/group/search query=x", "/chat/group/send content=hello", "/chat/group/edit name=x",
	"/chat/group/leave successor_agent_id=bob", "/chat/group/delete", "/chat/group/pin message_id=message",
	"/chat/group/transfer new_admin_agent_id=bob",
	"/channel/info", "/channel/messages", "/channel/search query=x", "/channel/send content=hello", "/channel/edit name=x",
	"/channel/subscribe", "/channel/unsubscribe", "/channel/delete", "/channel/transfer new_admin_agent_id=bob",
}

// conversations is a group chat and a channel of alice in which bob is and from which carol is banned; dave and erin, who blocks
// alice, are strangers.
type conversations struct {
	*world
	agents map[string]*agent
	ids    map[string]string // by the names that calls have for them
}

func newConversations(t *testing.T) *conversations {
	t.Helper()
	c := &conversations{world: newWorld(t), agents: map[string]*agent{}}
	c.ids = map[string]string{"nobody": noAgent, "no_chat": noChat, "no_channel": noChannel, "no_message": noMessage}
	for _, name := range []string{"alice", "bob", "carol", "dave", "erin"} {
		c.agents[name] = c.agent(name)
		c.ids[name] = c.agents[name].ID
	}
	alice, bob := c.agents["alice"], c.agents["bob"]
	for group, channel := range map[string]string{"group": "channel", "ended": "ended_channel"} {
		c.ids[group], c.ids[channel] = alice.createGroup(group, bob), alice.channel(channel)
		bob.must("/channel/subscribe", fields{"channel_id": c.ids[channel]})
		alice.groupMust("edit", c.ids[group], "ban_agent_ids", []*agent{c.agents["carol"]})
		alice.must("/channel/edit", fields{"channel_id": c.ids[channel], "ban_agent_ids": []*agent{c.agents["carol"]}})
	}
	c.ids["ended_message"] = bob.sendGroup(c.ids["ended"], "a message of the deleted group")
	alice.groupMust("delete", c.ids["ended"])
	alice.must("/channel/delete", fields{"channel_id": c.ids["ended_channel"]})
	c.ids["message"] = bob.sendGroup(c.ids["group"], "a message of the group")
	return c
}

// request is the path and the body of a call.
func (c *conversations) request(call string) (path string, body fields) {
	parts := strings.Fields(call)
	path, body = parts[0], fields{}
	if strings.HasPrefix(path, "/channel/") {
		body["channel_id"] = c.ids["channel"]
	} else if strings.HasPrefix(path, "/chat/group/") {
		body["chat_id"] = c.ids["group"]
	}
	if strings.HasSuffix(path, "/create") {
		clear(body)
	}
	for _, part := range parts[1:] {
		name, text, _ := strings.Cut(part, "=")
		values := strings.Split(text, ",")
		for i, value := range values {
			if id := c.ids[value]; id != "" {
				values[i] = id
			}
		}
		body[name] = values[0]
		if strings.HasSuffix(name, "_ids") {
			body[name] = values
		}
	}
	return path, body
}

// state is all of memberships and conversations, versions included: equal texts mean that no row was touched.
func (c *conversations) state() (text string) {
	c.T.Helper()
	c.Scan(`SELECT (SELECT string_agg(m::text || ' ' || m.xmin, E'\n' ORDER BY m::text) FROM memberships m) ||
		(SELECT string_agg(c::text || ' ' || c.xmin, E'\n' ORDER BY c::text) FROM conversations c)`, nil, &text)
	return text
}

// TestConversationRefusals makes calls, each with a good payment of its own. None may be charged or change anything.
func TestConversationRefusals(t *testing.T) {
	t.Parallel()
	c := newConversations(t)
	alice, bob := c.agents["alice"], c.agents["bob"]
	other := alice.createGroup("other", bob)
	c.ids["lonely"], c.ids["elsewhere"] = alice.createGroup("lonely"), bob.sendGroup(other, "a message of another group")
	c.ids["private"], _ = alice.send(bob, "a private message")
	c.addBlock(c.agents["erin"], alice)
	tests := refusals
	for _, call := range conversationCalls {
		path, rest, _ := strings.Cut(call, " ")
		with := func(id string) string { return path + " " + id + " " + rest }
		ended, unknown, code := "chat_id=ended", "chat_id=no_chat", "404 chat_not_found"
		if strings.HasPrefix(path, "/channel/") {
			ended, unknown, code = "channel_id=ended_channel", "channel_id=no_channel", "404 channel_not_found"
		} else {
			tests = append(tests, refusal{"a private chat", "alice", with("chat_id=private"), code})
		}
		tests = append(tests, refusal{"none", "alice", with(unknown), code},
			refusal{"a deleted one, by its admin", "alice", with(ended), "410 deleted"},
			refusal{"a deleted one, by a stranger", "dave", with(ended), "410 deleted"},
			refusal{"a deleted one, by a banned agent", "carol", with(ended), "410 deleted"})
	}
	state, messages := c.state(), c.Count(`SELECT count(*) FROM messages`)
	revenue, settles := c.Revenue(), c.settles.Load()
	for _, test := range tests {
		path, body := c.request(test.call)
		a := c.agents[test.who].ask(path, body)
		got := fmt.Sprint(a.Status, " ", a.Code)
		for _, name := range slices.Sorted(maps.Keys(c.ids)) {
			if strings.Contains(a.Message, c.ids[name]) {
				got += " " + name
			}
		}
		if got != test.want || a.Charged || a.Header.Get(x402.HeaderPaymentResponse) != "" {
			t.Errorf("%s (%s): %v, want %s, not charged", test.name, test.call, a, test.want)
		}
	}
	if c.Revenue() != revenue || c.settles.Load() != settles {
		t.Errorf("refusals brought %d, and /settle was called %d times", c.Revenue()-revenue, c.settles.Load()-settles)
	}
	if diff := cmp.Diff(state, c.state()); diff != "" || c.Count(`SELECT count(*) FROM messages`) != messages {
		t.Errorf("refusals changed something (-before +after):\n%s", diff)
	}
	c.checkConversations()
}

// TestChangesWaitForTheLock: each call that changes a conversation waits for a change that is under way while its payment settles. The
// rules then apply to what that change has made of the conversation.
func TestChangesWaitForTheLock(t *testing.T) {
	t.Parallel()
	c := newConversations(t)
	for _, call := range conversationCalls {
		path, body := c.request(call)
		if strings.HasSuffix(path, "/info") || strings.HasSuffix(path, "/messages") || strings.HasSuffix(path, "/search") {
			continue
		}
		held := make(chan func(), 1)
		mend := c.atSettlement(func() { held <- c.hold(`UPDATE conversations SET deleted_at = now() WHERE deleted_at IS NULL`) })
		c.whileWaiting(func() {
			if a := c.agents["alice"].ask(path, body); a.Status != http.StatusGone || !a.Charged {
				t.Errorf("%s while somebody deletes the conversation: %v, want a charged 410", call, a)
			}
		}, func() {
			select {
			case commit := <-held:
				commit()
			default:
			}
		})
		if mend(); t.Failed() {
			return
		}
		c.Exec(`UPDATE conversations SET deleted_at = NULL WHERE name IN ('group', 'channel')`)
	}
	c.checkConversations()
}

// TestMembersComeAndGo: agents are added, removed and banned, and leave, all at once, and nobody waits for ever.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	c := newConversations(t)
	calls := []string{
		"alice /chat/group/edit add_member_ids=bob,carol,dave", "alice /chat/group/edit remove_member_ids=dave,carol,bob",
		"alice /chat/group/edit ban_agent_ids=dave,carol", "alice /chat/group/edit unban_agent_ids=carol,dave", "bob /chat/group/leave",
		"bob /chat/group/send content=hello", "bob /chat/group/messages", "alice /chat/group/leave successor_agent_id=bob",
		"alice /channel/edit remove_subscriber_ids=bob,dave", "alice /channel/edit ban_agent_ids=dave,bob",
		"alice /channel/edit unban_agent_ids=bob,dave", "bob /channel/subscribe", "dave /channel/subscribe", "dave /channel/unsubscribe",
	}
	refused := []string{"", "banned", "not_member", "not_admin", "successor_required", "admin_alone", "admin_must_transfer"}
	for range 2 {
		var running sync.WaitGroup
		for _, call := range calls {
			name, call, _ := strings.Cut(call, " ")
			path, body := c.request(call)
			text, payment := body.json(t), c.sign(c.agents[name].Wallet, path)
			running.Go(func() {
				a, err := c.try(http.MethodPost, path, text, "X-API-KEY", c.agents[name].Key, x402.HeaderPaymentSignature, payment)
				if err != nil || !slices.Contains(refused, a.Code) {
					t.Errorf("%s of %s: %v (%v)", call, name, a, err)
				}
			})
		}
		running.Wait()
		c.checkConversations()
	}
}
