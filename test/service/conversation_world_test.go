package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

const noChannel = "channel_01k70taybbefyb5rymrpvaf640" // unknown, well formed

// fields is a request's body. Agents in it stand for their ids.
type fields map[string]any

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
	testkit.NoError(t, err)
	return string(text)
}

// ask posts a request with a new payment.
func (a *agent) ask(path string, body fields) testkit.Reply {
	a.w.T.Helper()
	return a.w.pay(a.Wallet, path, body.json(a.w.T), "X-API-KEY", a.Key)
}

// must posts a request that has to succeed.
func (a *agent) must(path string, body fields) testkit.Reply {
	a.w.T.Helper()
	reply := a.ask(path, body)
	reply.Require(a.w.T, fmt.Sprintf("%s posts to %s", a.Name, path), 200)
	return reply
}

// groupCall calls an operation of /chat/group with a new payment. The body has the chat's id and these pairs of field and value.
func (a *agent) groupCall(operation, chat string, pairs ...any) testkit.Reply {
	a.w.T.Helper()
	body := fields{"chat_id": chat}
	for i := 0; i < len(pairs); i += 2 {
		body[pairs[i].(string)] = pairs[i+1]
	}
	return a.ask("/chat/group/"+operation, body)
}

// groupMust is groupCall that must succeed.
func (a *agent) groupMust(operation, chat string, pairs ...any) {
	a.w.T.Helper()
	a.groupCall(operation, chat, pairs...).Require(a.w.T, fmt.Sprintf("%s calls %s", a.Name, operation), 200)
}

// createGroup creates a group chat with these members.
func (a *agent) createGroup(name string, members ...*agent) (chat string) {
	a.w.T.Helper()
	return a.must("/chat/group/create", fields{"name": name, "initial_member_ids": members}).Field(a.w.T, "chat_id")
}

// sendGroup writes to a group chat.
func (a *agent) sendGroup(chat, content string) (message string) {
	a.w.T.Helper()
	a.w.Secret(content)
	return a.must("/chat/group/send", fields{"chat_id": chat, "content": content}).Field(a.w.T, "message_id")
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
		WHERE (SELECT array_agg(username ORDER BY username) FROM agents WHERE id IN (p.low_agent, p.high_agent)) =
			ARRAY[least($1, $2), greatest($1, $2)]::text[] ORDER BY o.number DESC LIMIT 1`, []any{a.Name, from.Name}, &content, &sender)
	if sender != from.Name {
		a.w.T.Errorf("the note to %s is from %s, want %s", a.Name, sender, from.Name)
	}
	return content
}

// addBlock lets one agent block another.
func (w *world) addBlock(blocker, blocked *agent) {
	w.T.Helper()
	w.Exec(`INSERT INTO blocks (blocker_id, blocked_id, created_at)
		SELECT a.id, b.id, now() FROM agents a, agents b WHERE a.username = $1 AND b.username = $2`, blocker.Name, blocked.Name)
}

// checkConversations fails the test if what must always hold of group chats, channels and their ledger does not.
func (w *world) checkConversations() {
	w.T.Helper()
	for rule, query := range map[string]string{
		"member_count is the number of members": `SELECT count(*) FROM conversations c WHERE member_count <>
			(SELECT count(*) FROM memberships m WHERE m.conversation_id = c.id AND m.status = 'member')`,
		"the admin of a group chat is a member": `SELECT count(*) FROM conversations c WHERE kind = 'group' AND NOT EXISTS
			(SELECT 1 FROM memberships m WHERE m.conversation_id = c.id AND m.agent_id = c.admin_id AND m.status = 'member')`,
		"no admin is banned": `SELECT count(*) FROM conversations c JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = c.admin_id
			WHERE m.status = 'banned'`,
		"at most five different messages of the conversation are pinned": `SELECT count(*) FROM conversations c
			WHERE cardinality(pinned) > 5 OR cardinality(pinned) <>
				(SELECT count(*) FROM messages o WHERE o.conversation_id = c.id AND o.id = ANY (c.pinned))`,
		"messages are numbered without gaps": `SELECT count(*) FROM conversations c
			WHERE last_number <> (SELECT count(*) FROM messages o WHERE o.conversation_id = c.id)
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

// crowd puts so many new agents into the group chat or channel of that kind.
func (w *world) crowd(kind string, agents int) {
	w.T.Helper()
	w.Exec(`WITH crowd AS (
			INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			SELECT gen_random_uuid(), 'crowd_' || n, '', true, sha256(CAST(CAST(n AS text) AS bytea)), now()
			FROM generate_series(1, CAST($2 AS int)) AS n RETURNING id
		), joined AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT c.id, crowd.id, 'member', 0, 0, now() FROM conversations c, crowd WHERE c.kind = $1
		)
		UPDATE conversations SET member_count = member_count + $2 WHERE kind = $1`, kind, agents)
}

// unreadOf is how many messages of its only group chat or channel an agent has not read.
func (w *world) unreadOf(a *agent) int {
	w.T.Helper()
	return w.Count(`SELECT c.last_number - m.read_number - m.unread_own FROM memberships m JOIN conversations c ON c.id = m.conversation_id
		JOIN agents a ON a.id = m.agent_id WHERE c.kind <> $1 AND a.username = $2`, store.KindPrivate, a.Name)
}

// channel creates a channel and returns its id.
func (a *agent) channel(name string) string {
	a.w.T.Helper()
	return a.must("/channel/create", fields{"name": name}).Field(a.w.T, "channel_id")
}

// broadcast sends to a channel and returns the message's id.
func (a *agent) broadcast(channel, content string) string {
	a.w.T.Helper()
	a.w.Secret(content)
	return a.must("/channel/send", fields{"channel_id": channel, "content": content}).Field(a.w.T, "message_id")
}

// seesChannel compares the channel's info with want, apart from the time.
func (a *agent) seesChannel(when string, want client.Channel) {
	a.w.T.Helper()
	info, err := a.GetChannelWithResponse(a.w.T.Context(), client.ChannelRequest{ChannelID: want.ChannelID})
	testkit.Require200(a.w.T, fmt.Sprintf("%s, %s looks at the channel", when, a.Name), info, err)
	if diff := cmp.Diff(&want, info.JSON200, cmpopts.IgnoreFields(client.Channel{}, "CreatedAt", "BannedAgentIds")); diff != "" {
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
	want := []any{subscribed, administered, int64(len(subscribed))}
	got := []any{me.JSON200.SubscribedChannelIds, me.JSON200.AdministeredChannelIds, me.JSON200.SubscribedChannelCount}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		a.w.T.Errorf("%s, the channels of %s: subscribed, administered and their count (-want +got):\n%s", when, a.Name, diff)
	}
}
