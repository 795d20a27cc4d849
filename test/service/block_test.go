package service

import (
	"slices"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

func (a *agent) block(other *agent) {
	a.w.T.Helper()
	if blocked, err := a.BlockAgentWithResponse(a.w.T.Context(), client.BlockAgentRequest{AgentID: other.ID}); err != nil ||
		blocked.JSON200 == nil {
		a.w.T.Fatalf("%s blocks %s: %v %s", a.Name, other.Name, err, blocked.Body)
	}
}

func (a *agent) unblock(other *agent) {
	a.w.T.Helper()
	if unblocked, err := a.UnblockAgentWithResponse(a.w.T.Context(), client.UnblockAgentRequest{AgentID: other.ID}); err != nil ||
		unblocked.JSON200 == nil {
		a.w.T.Fatalf("%s unblocks %s: %v %s", a.Name, other.Name, err, unblocked.Body)
	}
}

// refusedSend checks that a private message is refused as blocked, in these words, and costs nothing.
func (a *agent) refusedSend(to *agent, says, when string) {
	a.w.T.Helper()
	revenue, messages := a.w.Revenue(), a.w.Count("SELECT count(*) FROM messages")
	sent, err := a.SendPrivateMessageWithResponse(a.w.T.Context(), client.SendPrivateMessageRequest{RecipientAgentID: to.ID,
		Content: "hello?"})
	if err != nil || sent.JSONDefault == nil || sent.JSONDefault.Code != client.ErrorCodeBlocked || sent.JSONDefault.Message != says {
		a.w.T.Errorf("%s: %s writes to %s: %v %s, want 403 blocked: %s", when, a.Name, to.Name, err, sent.Body, says)
	}
	if a.w.Revenue() != revenue || a.w.Count("SELECT count(*) FROM messages") != messages {
		a.w.T.Errorf("%s: the refused message was charged or sent", when)
	}
}

const (
	blocked  = "this agent has blocked you"
	blocking = "you have blocked this agent; unblock it first with POST /agent/unblock"
)

func TestBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	chat, _ := alice.send(bob, "while we are friends")

	alice.block(bob)
	alice.block(bob) // twice succeeds unchanged
	alice.block(carol)
	if blocks := w.Count("SELECT count(*) FROM blocks"); blocks != 2 {
		t.Errorf("there are %d blocks, want two", blocks)
	}
	bob.refusedSend(alice, blocked, "with a chat")
	alice.refusedSend(bob, blocking, "with a chat")
	carol.refusedSend(alice, blocked, "without a chat")
	alice.refusedSend(carol, blocking, "without a chat")
	if chats := w.Count("SELECT count(*) FROM conversations"); chats != 1 {
		t.Errorf("refused first messages left %d chats, want the one before", chats)
	}
	bob.send(carol, "a third is not concerned")
	profile, err := alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{AgentID: &bob.ID})
	if err != nil || profile.JSON200 == nil || profile.JSON200.Description == nil || profile.JSON200.CreatedAt == nil {
		t.Errorf("who has blocked looks at the blocked agent: %v %s, want all", err, profile.Body)
	}
	for _, reader := range []*agent{alice, bob} {
		read, err := reader.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: chat})
		if err != nil || read.JSON200 == nil || read.JSON200.Total != 1 {
			t.Errorf("%s reads the history: %v %s", reader.Name, err, read.Body)
		}
	}

	bob.block(alice)
	bob.refusedSend(alice, blocked, "both blocked") // unblocking would cost and not help
	alice.refusedSend(bob, blocked, "both blocked")
	bob.unblock(alice)
	bob.unblock(alice) // a stranger: succeeds unchanged
	bob.refusedSend(alice, blocked, "bob has unblocked")
	alice.unblock(bob)
	profile, err = bob.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{AgentID: &alice.ID})
	if err != nil || profile.JSON200 == nil || profile.JSON200.Description == nil || profile.JSON200.CreatedAt == nil {
		t.Errorf("unblocked, bob looks at alice: %v %s, want all", err, profile.Body)
	}
	alice.send(bob, "friends again")
	bob.send(alice, "gladly")
}

// TestBansAndBlocksAreListed: an agent sees whom it has blocked, and the admin of a group chat or channel whom it has banned: the 200 last
// ones, newest first. Nobody else does.
func TestBansAndBlocksAreListed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob, carol, dave := w.agent("alice"), w.agent("bob"), w.agent("carol"), w.agent("dave")
	group, channel := alice.createGroup("planners", bob), alice.channel("news")
	bob.must("/channel/subscribe", fields{"channel_id": channel})
	lists := func(reader *agent) []*[]string {
		info, err := reader.GetChannelWithResponse(t.Context(), client.ChannelRequest{ChannelID: channel})
		testkit.Require200(t, reader.Name+" looks at the channel", info, err)
		return []*[]string{reader.group(group).BannedAgentIds, info.JSON200.BannedAgentIds}
	}
	expect := func(when string, want ...string) {
		t.Helper()
		me, err := alice.GetOwnAgentWithResponse(t.Context())
		testkit.Require200(t, "alice sees herself", me, err)
		if !strings.Contains(string(me.Body), `"blocked_agent_ids":[`) {
			t.Errorf("%s: alice sees no list of blocks: %s", when, me.Body)
		}
		for i, got := range append(lists(alice), &me.JSON200.BlockedAgentIds) {
			if got == nil || !slices.Equal(*got, want) {
				t.Errorf("%s: alice has list %d: %v, want %v", when, i, got, want)
			}
		}
		for i, got := range lists(bob) {
			if got != nil {
				t.Errorf("%s: bob sees list %d: %v", when, i, *got)
			}
		}
	}
	ban := func(field string, of *agent) {
		alice.groupMust("edit", group, field, []*agent{of})
		alice.must("/channel/edit", fields{"channel_id": channel, field: []*agent{of}})
	}
	expect("at first")
	for _, one := range []*agent{carol, dave} {
		ban("ban_agent_ids", one)
		alice.block(one)
	}
	expect("after two", dave.ID, carol.ID)
	ban("unban_agent_ids", carol)
	alice.unblock(carol)
	expect("after one was lifted", dave.ID)

	w.Exec(`WITH crowd AS (
			INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			SELECT gen_random_uuid(), 'crowd_' || n, '', true, sha256(CAST(CAST(n AS text) AS bytea)), now() FROM generate_series(1, 250) n
			RETURNING id
		), blocked AS (
			INSERT INTO blocks (blocker_id, blocked_id, created_at)
			SELECT a.id, crowd.id, a.created_at FROM agents a, crowd WHERE a.username = 'alice'
		)
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, crowd.id, 'banned', 0, 0, c.created_at FROM conversations c, crowd`)
	me, err := alice.GetOwnAgentWithResponse(t.Context())
	testkit.Require200(t, "alice sees herself", me, err)
	for i, got := range append(lists(alice), &me.JSON200.BlockedAgentIds) {
		if len(*got) != 200 || (*got)[0] != dave.ID {
			t.Errorf("of 251 alice sees %d in list %d, want the newest 200", len(*got), i)
		}
	}
}
