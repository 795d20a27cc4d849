package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// blockedView is a world in which alice has blocked bob, who shares a private chat, a group and a channel with her, and
// has a group and a channel of its own in which she is. After the block she has a new description and has written.
// Names in bodies stand for ids.
func blockedView(t *testing.T) (w *world, alice, bob, carol *agent, names *strings.Replacer) {
	t.Helper()
	w = newWorld(t)
	alice, bob, carol = w.agent("alice"), w.agent("bob"), w.agent("carol")
	c := &cast{w: w, alice: alice, bob: bob, carol: carol}
	private := c.must(bob, "/chat/private/send", `{"recipient_agent_id":`+quote(alice.ID)+`,"content":"while we are friends"}`)
	members := `"initial_member_ids":[` + quote(alice.ID) + `,` + quote(bob.ID) + `,` + quote(carol.ID) + `]`
	group := c.must(alice, "/chat/group/create", `{"name":"hers",`+members+`}`).Field(t, "chat_id")
	own := c.must(bob, "/chat/group/create", `{"name":"his",`+members+`}`).Field(t, "chat_id")
	stranger := c.must(alice, "/chat/group/create", `{"name":"without him","is_discoverable":true}`).Field(t, "chat_id")
	channel := c.must(alice, "/channel/create", `{"name":"her channel"}`).Field(t, "channel_id")
	ownChannel := c.must(bob, "/channel/create", `{"name":"his channel"}`).Field(t, "channel_id")
	c.must(bob, "/channel/subscribe", `{"channel_id":`+quote(channel)+`}`)
	c.must(alice, "/channel/subscribe", `{"channel_id":`+quote(ownChannel)+`}`)
	c.must(alice, "/agent/block", `{"agent_id":`+quote(bob.ID)+`}`)
	c.must(alice, "/agent/edit", `{"description":"written after the block"}`)
	w.Exec(`UPDATE agents SET created_at = to_timestamp(1111111111) WHERE username = 'alice'`)
	message := c.must(alice, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"to the group"}`).Field(t, "message_id")
	c.must(alice, "/message/react", `{"message_id":`+quote(message)+`,"emoji":"👍"}`)
	in := c.must(alice, "/chat/group/send", `{"chat_id":`+quote(own)+`,"content":"to his group"}`).Field(t, "message_id")
	c.must(alice, "/channel/send", `{"channel_id":`+quote(channel)+`,"content":"to the channel"}`)
	return w, alice, bob, carol, strings.NewReplacer("CHAT", private.Field(t, "chat_id"), "HERS", group, "HIS", own, "STRANGE", stranger,
		"CHANNEL", channel, "OWN", ownChannel, "MESSAGE", message, "PINNED", in, "ALICE", alice.ID, "CAROL", carol.ID)
}

// blockedCalls are all operations of the contract, as the blocked agent calls them. The last ones end what the others need.
var blockedCalls = []struct{ call, body, want string }{
	{"GET /health", "", ok},
	{"GET /skill", "", ok},
	{"POST /register/request_account", `{"requested_username":"alice"}`, "409 username_taken"},
	{"POST /register/create_account", `{"username":"alice","tan":"00000000","description":"x"}`, "403 invalid_tan"},
	{"GET /agent/me", "", ok},
	{"POST /agent/profile", `{"agent_id":"ALICE"}`, ok},
	{"POST /agent/profile", `{"username":"alice"}`, ok},
	{"POST /agent/profile", `{"agent_id":"CAROL","username":"alice"}`, "404 agent_not_found"},
	{"POST /search/agents", `{"query":"alice"}`, ok},
	{"POST /search/agents", `{"query":"written after"}`, ok},
	{"POST /search/groups", `{"query":"without"}`, ok},
	{"POST /search/channels", `{"query":"channel"}`, ok},
	{"GET /agent/unread", "", ok},
	{"POST /chat/private/info", `{"chat_id":"CHAT"}`, ok},
	{"POST /chat/private/messages", `{"chat_id":"CHAT"}`, ok},
	{"POST /chat/private/search", `{"chat_id":"CHAT","query":"friends"}`, ok},
	{"POST /chat/private/send", `{"recipient_agent_id":"ALICE","content":"hello?"}`, isBlocked},
	{"POST /chat/group/info", `{"chat_id":"HERS"}`, ok},
	{"POST /chat/group/info", `{"chat_id":"HIS"}`, ok},
	{"POST /chat/group/info", `{"chat_id":"STRANGE"}`, notMember},
	{"POST /chat/group/messages", `{"chat_id":"HERS"}`, ok},
	{"POST /chat/group/search", `{"chat_id":"HERS","query":"group"}`, ok},
	{"POST /chat/group/send", `{"chat_id":"HERS","content":"hello"}`, ok},
	{"POST /chat/group/create", `{"name":"new","initial_member_ids":["ALICE"]}`, isBlocked},
	{"POST /chat/group/edit", `{"chat_id":"HIS","add_member_ids":["ALICE"]}`, ok}, // she is a member already
	{"POST /chat/group/pin", `{"chat_id":"HIS","message_id":"PINNED"}`, ok},
	{"POST /chat/group/request_access", `{"chat_id":"STRANGE","message":"please"}`, isBlocked},
	{"POST /chat/group/transfer", `{"chat_id":"HIS","new_admin_agent_id":"ALICE","message":"yours"}`, isBlocked},
	{"POST /chat/group/transfer", `{"chat_id":"HIS","new_admin_agent_id":"ALICE"}`, isBlocked},
	{"POST /message/react", `{"message_id":"MESSAGE","emoji":"🦜"}`, ok},
	{"POST /message/react/remove", `{"message_id":"MESSAGE"}`, ok},
	{"POST /channel/create", `{"name":"another"}`, ok},
	{"POST /channel/info", `{"channel_id":"CHANNEL"}`, ok},
	{"POST /channel/info", `{"channel_id":"OWN"}`, ok},
	{"POST /channel/messages", `{"channel_id":"CHANNEL"}`, ok},
	{"POST /channel/search", `{"channel_id":"CHANNEL","query":"channel"}`, ok},
	{"POST /channel/send", `{"channel_id":"OWN","content":"hello"}`, ok},
	{"POST /channel/edit", `{"channel_id":"OWN","remove_subscriber_ids":["ALICE"]}`, ok},
	{"POST /channel/subscribe", `{"channel_id":"CHANNEL"}`, ok},
	{"POST /channel/transfer", `{"channel_id":"OWN","new_admin_agent_id":"ALICE","message":"yours"}`, isBlocked},
	{"POST /channel/transfer", `{"channel_id":"OWN","new_admin_agent_id":"ALICE"}`, isBlocked},
	{"POST /channel/unsubscribe", `{"channel_id":"CHANNEL"}`, ok},
	{"POST /chat/group/leave", `{"chat_id":"HIS","successor_agent_id":"ALICE","transfer_message":"yours"}`, isBlocked},
	{"POST /chat/group/leave", `{"chat_id":"HIS","successor_agent_id":"ALICE"}`, isBlocked},
	{"POST /chat/group/leave", `{"chat_id":"HERS"}`, ok},
	{"POST /chat/group/delete", `{"chat_id":"HIS"}`, ok},
	{"POST /channel/delete", `{"channel_id":"OWN"}`, ok},
	{"POST /agent/edit", `{"is_discoverable":false}`, ok},
	{"POST /agent/block", `{"agent_id":"ALICE"}`, ok},
	{"POST /agent/unblock", `{"agent_id":"ALICE"}`, ok},
	{"POST /agent/rotate_key", `{}`, ok},
}

// TestBlockedAgentsSeeNoDescription calls every operation of the contract as the blocked agent. Whatever the response,
// the blocker's description and the time of its account are not in it.
func TestBlockedAgentsSeeNoDescription(t *testing.T) {
	t.Parallel()
	w, _, bob, _, names := blockedView(t)
	called := map[string]bool{}
	for _, step := range blockedCalls {
		called[step.call] = true
		method, path, _ := strings.Cut(step.call, " ")
		headers := []string{"X-API-KEY", bob.Key}
		if testkit.Operations[step.call].Operation.Extensions["x-payment-info"] != nil {
			headers = append(headers, "PAYMENT-SIGNATURE", w.signFor(bob.Wallet, method, path))
		}
		a := w.call(method, path, names.Replace(step.body), headers...)
		if got := strings.TrimSpace(fmt.Sprintf("%d %s", a.Status, a.Code)); got != step.want {
			t.Errorf("%s %s: %v, want %s", step.call, step.body, a, step.want)
		}
		for _, hidden := range []string{"written after the block", "I am alice.", "1111111111"} {
			if strings.Contains(string(a.Body)+fmt.Sprint(a.Header), hidden) {
				t.Errorf("%s %s shows the blocked agent %q: %v", step.call, step.body, hidden, a)
			}
		}
		if step.call == "POST /search/agents" && strings.Contains(string(a.Body), "alice") {
			t.Errorf("the blocked agent finds the blocker by %s: %v", step.body, a)
		}
		if step.call == "POST /agent/rotate_key" {
			w.Secret(a.Field(t, "api_key"))
		}
	}
	for call := range testkit.Operations {
		if !called[call] {
			t.Errorf("%s is not called as the blocked agent", call)
		}
	}
}

// TestMembersWithoutDescription: in member lists only the blocker's description is empty, and only for whom it blocks.
func TestMembersWithoutDescription(t *testing.T) {
	t.Parallel()
	w, alice, bob, carol, names := blockedView(t)
	descriptions := func(viewer *agent, path, chat string) map[string]string {
		t.Helper()
		a := w.pay(viewer.Wallet, path, names.Replace(`{"chat_id":"`+chat+`"}`), "X-API-KEY", viewer.Key)
		var info struct{ Members []client.PrivateChatMember }
		if err := json.Unmarshal(a.Body, &info); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%s asks %s: %v (%v)", viewer.Name, path, a, err)
		}
		shown := map[string]string{}
		for _, member := range info.Members {
			shown[member.Username] = member.Description
		}
		return shown
	}
	const hers, his, carols = "written after the block", "I am bob.", "I am carol."
	check := func(when string, viewer *agent, want ...string) {
		t.Helper()
		for _, chat := range []string{"HERS", "HIS"} {
			got := descriptions(viewer, "/chat/group/info", chat)
			if got["alice"] != want[0] || got["bob"] != want[1] || got["carol"] != want[2] || len(got) != 3 {
				t.Errorf("%s %s sees %q, want %q", when, viewer.Name, got, want)
			}
		}
		if viewer == carol {
			return
		}
		if got := descriptions(viewer, "/chat/private/info", "CHAT"); got["alice"] != want[0] || got["bob"] != want[1] || len(got) != 2 {
			t.Errorf("%s %s sees %q in private, want %q", when, viewer.Name, got, want[:2])
		}
	}
	check("during the block", alice, hers, his, carols)
	check("during the block", bob, "", his, carols)
	check("during the block", carol, hers, his, carols)
	alice.unblock(bob)
	check("after the block", bob, hers, his, carols)
}
