package server_test

import (
	"net/http"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

func (a *agent) block(other *agent) {
	a.w.T.Helper()
	if blocked, err := a.BlockAgentWithResponse(a.w.T.Context(), client.BlockAgentRequest{AgentID: other.ID}); err != nil || blocked.JSON200 == nil {
		a.w.T.Fatalf("%s blocks %s: %v %s", a.Name, other.Name, err, blocked.Body)
	}
}

func (a *agent) unblock(other *agent) {
	a.w.T.Helper()
	if unblocked, err := a.UnblockAgentWithResponse(a.w.T.Context(), client.UnblockAgentRequest{AgentID: other.ID}); err != nil || unblocked.JSON200 == nil {
		a.w.T.Fatalf("%s unblocks %s: %v %s", a.Name, other.Name, err, unblocked.Body)
	}
}

// refusedSend checks that a private message is refused as blocked, in these words, and costs nothing.
func (a *agent) refusedSend(to *agent, says, when string) {
	a.w.T.Helper()
	revenue, messages := a.w.Revenue(), a.w.Count("SELECT count(*) FROM messages")
	sent, err := a.SendPrivateMessageWithResponse(a.w.T.Context(), client.SendPrivateMessageRequest{RecipientAgentID: to.ID, Content: "hello?"})
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
	alice.send(bob, "friends again")
	bob.send(alice, "gladly")
}

func TestBlockedProfile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	look := func(viewer *agent, request client.AgentProfileRequest) *client.AgentProfile {
		t.Helper()
		profile, err := viewer.GetAgentProfileWithResponse(t.Context(), request)
		testkit.Require200(t, viewer.Name+" looks", profile, err)
		return profile.JSON200
	}
	alice.block(bob)
	for name, request := range map[string]client.AgentProfileRequest{
		"by id": {AgentID: &alice.ID}, "by username": {Username: &alice.Name}, "by both": {AgentID: &alice.ID, Username: &alice.Name},
	} {
		profile := look(bob, request)
		if profile.AgentID != alice.ID || profile.Username != "alice" || !profile.IsDiscoverable || profile.Description != nil || profile.CreatedAt != nil {
			t.Errorf("the blocked agent looks %s and sees %+v, want neither description nor created_at", name, profile)
		}
	}
	if profile := look(alice, client.AgentProfileRequest{AgentID: &bob.ID}); profile.Description == nil || profile.CreatedAt == nil {
		t.Errorf("who has blocked sees %+v, want all", profile)
	}
	alice.unblock(bob)
	if profile := look(bob, client.AgentProfileRequest{AgentID: &alice.ID}); profile.Description == nil || profile.CreatedAt == nil {
		t.Errorf("unblocked, bob sees %+v, want all", profile)
	}
}

func TestBlockRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	revenue, settles := w.Revenue(), w.settles.Load()
	for _, test := range []struct {
		name, path, id string
		status         int
		code           client.ErrorCode
	}{
		{"blocking oneself", "/agent/block", alice.ID, http.StatusBadRequest, client.ErrorCodeInvalidRequest},
		{"blocking nobody", "/agent/block", noAgent, http.StatusNotFound, client.ErrorCodeAgentNotFound},
		{"unblocking nobody", "/agent/unblock", noAgent, http.StatusNotFound, client.ErrorCodeAgentNotFound},
		{"blocking a chat", "/agent/block", noChat, http.StatusBadRequest, client.ErrorCodeInvalidRequest},
	} {
		a := w.pay(alice.Wallet, test.path, `{"agent_id":`+quote(test.id)+`}`, "X-API-KEY", alice.Key)
		if a.Status != test.status || a.Code != string(test.code) || a.Charged {
			t.Errorf("%s: %v, want %d %s", test.name, a, test.status, test.code)
		}
	}
	if w.Revenue() != revenue || w.settles.Load() != settles || w.Count("SELECT count(*) FROM blocks") != 0 {
		t.Errorf("refusals brought %d and left %d blocks", w.Revenue()-revenue, w.Count("SELECT count(*) FROM blocks"))
	}
}
