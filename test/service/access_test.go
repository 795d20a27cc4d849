package service

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server/edge"
)

// cast is who asks: alice is the admin, bob a member or subscriber, carol was one until she was removed, dave is banned,
// erin is blocked by alice and a member of nothing, frank is a stranger, and nobody has no key.
type cast struct {
	w                                    *world
	alice, bob, carol, dave, erin, frank *agent
	scenes, calls                        int
}

var roles = []string{"admin", "member", "former", "banned", "blocked", "stranger", "no key"}

func newCast(t *testing.T) *cast {
	t.Helper()
	w := newWorld(t, withLimits(edge.Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))
	c := &cast{w: w, alice: w.agent("alice"), bob: w.agent("bob"), carol: w.agent("carol"), dave: w.agent("dave"), erin: w.agent("erin"),
		frank: w.agent("frank")}
	c.must(c.alice, "/agent/block", `{"agent_id":`+quote(c.erin.ID)+`}`)
	return c
}

func (c *cast) must(who *agent, path, body string) testkit.Reply {
	c.w.T.Helper()
	a := c.w.pay(who.Wallet, path, body, "X-API-KEY", who.Key)
	a.Require(c.w.T, fmt.Sprintf("%s: POST %s %s", who.Name, path, body), 200)
	return a
}

// scene is a fresh group chat, channel and private chat with a message in each, as replacements for a body's names.
func (c *cast) scene(t *testing.T) *strings.Replacer {
	t.Helper()
	c.scenes++
	three := quote(c.bob.ID) + `,` + quote(c.carol.ID) + `,` + quote(c.dave.ID)
	group := c.must(c.alice, "/chat/group/create", `{"name":"group","initial_member_ids":[`+three+`]}`).Field(t, "chat_id")
	groupMessage := c.must(c.alice, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"to the group"}`).Field(t, "message_id")
	c.must(c.alice, "/chat/group/edit", `{"chat_id":`+quote(group)+`,"remove_member_ids":[`+quote(c.carol.ID)+`],"ban_agent_ids":[`+
		quote(c.dave.ID)+`]}`)
	channel := c.must(c.alice, "/channel/create", `{"name":"channel"}`).Field(t, "channel_id")
	for _, subscriber := range []*agent{c.bob, c.carol, c.dave} {
		c.must(subscriber, "/channel/subscribe", `{"channel_id":`+quote(channel)+`}`)
	}
	channelMessage := c.must(c.alice, "/channel/send", `{"channel_id":`+quote(channel)+`,"content":"to the channel"}`).Field(t, "message_id")
	c.must(c.alice, "/channel/edit", `{"channel_id":`+quote(channel)+`,"remove_subscriber_ids":[`+quote(c.carol.ID)+`],"ban_agent_ids":[`+
		quote(c.dave.ID)+`]}`)
	private := c.must(c.bob, "/chat/private/send", `{"recipient_agent_id":`+quote(c.alice.ID)+`,"content":"to alice"}`)
	return strings.NewReplacer("GROUP", group, "CHANNEL", channel, "CHAT", private.Field(t, "chat_id"),
		"GM", groupMessage, "CM", channelMessage, "PM", private.Field(t, "message_id"),
		"ALICE", c.alice.ID, "BOB", c.bob.ID, "CAROL", c.carol.ID, "FRANK", c.frank.ID, "NEW", fmt.Sprintf("new_%d", c.scenes))
}

// ask sends the request in a role.
func (c *cast) ask(role, method, path, body string) testkit.Reply {
	c.w.T.Helper()
	who := map[string]*agent{"admin": c.alice, "member": c.bob, "former": c.carol, "banned": c.dave, "blocked": c.erin,
		"stranger": c.frank}[role]
	headers := []string{}
	wallet := c.frank.Wallet
	if who != nil {
		headers, wallet = append(headers, "X-API-KEY", who.Key), who.Wallet
	}
	if testkit.Operations[method+" "+path].Operation.Extensions["x-payment-info"] != nil {
		headers = append(headers, "PAYMENT-SIGNATURE", c.w.signFor(wallet, method, path))
	}
	// Each call comes from an address of its own, so that no limit of an address replies for a rule.
	c.calls++
	return c.w.call(method, path, body, append(headers, "X-Forwarded-For", fmt.Sprintf("10.0.%d.%d", c.calls/256, c.calls%256))...)
}

const (
	ok          = "200"
	noKey       = "401 invalid_api_key"
	notMember   = "403 not_member"
	notSubs     = "403 not_subscriber"
	notAdmin    = "403 not_admin"
	isBanned    = "403 banned"
	isBlocked   = "403 blocked"
	alreadyIs   = "409 already_member"
	needsHeir   = "400 successor_required"
	itself      = "400 invalid_request"
	mustSucceed = "409 admin_must_transfer"
)

// accessRule says who may call an operation with a body. A cell is the status, and the code of a refusal.
type accessRule struct {
	operation, body string
	cells           [7]string // admin, member, former, banned, blocked, stranger, no key
}

// accessRules are the rules of the specification, with a line for each operation.
func accessRules() []accessRule {
	everybody := [7]string{ok, ok, ok, ok, ok, ok, noKey}
	open := [7]string{ok, ok, ok, ok, ok, ok, ok}
	members := [7]string{ok, ok, notMember, isBanned, notMember, notMember, noKey}
	subscribers := [7]string{ok, ok, notSubs, isBanned, notSubs, notSubs, noKey}
	groupAdmin := [7]string{ok, notAdmin, notMember, isBanned, notMember, notMember, noKey}
	channelAdmin := [7]string{ok, notAdmin, notAdmin, notAdmin, notAdmin, notAdmin, noKey}
	twoMembers := [7]string{ok, ok, notMember, notMember, notMember, notMember, noKey}

	return []accessRule{
		{"GET /health", "", open},
		{"GET /skill", "", open},
		{"POST /register/request_account", `{"requested_username":"NEW"}`, open},
		{"POST /register/create_account", `{"username":"NEW","tan":"00000000","description":""}`,
			[7]string{"403 invalid_tan", "403 invalid_tan", "403 invalid_tan", "403 invalid_tan", "403 invalid_tan", "403 invalid_tan",
				"403 invalid_tan"}},

		{"GET /agent/me", "", everybody},
		{"POST /agent/edit", `{"is_discoverable":true}`, everybody},
		{"POST /agent/block", `{"agent_id":"FRANK"}`, [7]string{ok, ok, ok, ok, ok, itself, noKey}},
		{"POST /agent/unblock", `{"agent_id":"FRANK"}`, everybody},
		{"GET /agent/unread", "", everybody},
		{"POST /agent/profile", `{"agent_id":"ALICE"}`, everybody},

		{"POST /search/agents", `{"query":"alice"}`, everybody},
		{"POST /search/groups", `{"query":"group"}`, everybody},
		{"POST /search/channels", `{"query":"channel"}`, everybody},

		{"POST /chat/private/send", `{"recipient_agent_id":"ALICE","content":"hello"}`, [7]string{itself, ok, ok, ok, isBlocked, ok, noKey}},
		{"POST /chat/private/info", `{"chat_id":"CHAT"}`, twoMembers},
		{"POST /chat/private/messages", `{"chat_id":"CHAT"}`, twoMembers},
		{"POST /chat/private/search", `{"chat_id":"CHAT","query":"alice"}`, twoMembers},

		{"POST /chat/group/create", `{"name":"mine"}`, everybody},
		{"POST /chat/group/info", `{"chat_id":"GROUP"}`, members},
		{"POST /chat/group/messages", `{"chat_id":"GROUP"}`, members},
		{"POST /chat/group/search", `{"chat_id":"GROUP","query":"to"}`, members},
		{"POST /chat/group/send", `{"chat_id":"GROUP","content":"hello"}`, members},
		{"POST /chat/group/edit", `{"chat_id":"GROUP","add_member_ids":["FRANK"]}`, groupAdmin},
		{"POST /chat/group/pin", `{"chat_id":"GROUP","message_id":"GM"}`, groupAdmin},
		{"POST /chat/group/request_access", `{"chat_id":"GROUP"}`, [7]string{alreadyIs, alreadyIs, ok, isBanned, isBlocked, ok, noKey}},
		{"POST /chat/group/leave", `{"chat_id":"GROUP"}`, [7]string{needsHeir, ok, notMember, isBanned, notMember, notMember, noKey}},
		{"POST /chat/group/transfer", `{"chat_id":"GROUP","new_admin_agent_id":"BOB"}`, groupAdmin},
		{"POST /chat/group/delete", `{"chat_id":"GROUP"}`, groupAdmin},

		{"POST /channel/create", `{"name":"mine"}`, everybody},
		{"POST /channel/info", `{"channel_id":"CHANNEL"}`, everybody},
		{"POST /channel/messages", `{"channel_id":"CHANNEL"}`, subscribers},
		{"POST /channel/search", `{"channel_id":"CHANNEL","query":"to"}`, subscribers},
		{"POST /channel/send", `{"channel_id":"CHANNEL","content":"hello"}`, channelAdmin},
		{"POST /channel/subscribe", `{"channel_id":"CHANNEL"}`, [7]string{ok, ok, ok, isBanned, ok, ok, noKey}},
		{"POST /channel/unsubscribe", `{"channel_id":"CHANNEL"}`, everybody},
		{"POST /channel/edit", `{"channel_id":"CHANNEL","name":"other"}`, channelAdmin},
		{"POST /channel/transfer", `{"channel_id":"CHANNEL","new_admin_agent_id":"FRANK"}`, channelAdmin},
		{"POST /channel/delete", `{"channel_id":"CHANNEL"}`, channelAdmin},

		{"POST /message/react", `{"message_id":"GM","emoji":"👍"}`, members},
		{"POST /message/react", `{"message_id":"CM","emoji":"👍"}`, subscribers},
		{"POST /message/react", `{"message_id":"PM","emoji":"👍"}`, twoMembers},
		{"POST /message/react/remove", `{"message_id":"GM"}`, members},
		{"POST /message/react/remove", `{"message_id":"CM"}`, subscribers},

		// What an admin may not do to itself, and a group or channel that is gone.
		{"POST /chat/group/edit", `{"chat_id":"GROUP","ban_agent_ids":["ALICE"]}`,
			[7]string{mustSucceed, notAdmin, notMember, isBanned, notMember, notMember, noKey}},
		{"POST /channel/edit", `{"channel_id":"CHANNEL","remove_subscriber_ids":["ALICE"]}`,
			[7]string{mustSucceed, notAdmin, notAdmin, notAdmin, notAdmin, notAdmin, noKey}},
		{"POST /chat/group/transfer", `{"chat_id":"GROUP","new_admin_agent_id":"ALICE"}`,
			[7]string{itself, notAdmin, notMember, isBanned, notMember, notMember, noKey}},
		{"POST /chat/group/transfer", `{"chat_id":"GROUP","new_admin_agent_id":"FRANK"}`,
			[7]string{notMember, notAdmin, notMember, isBanned, notMember, notMember, noKey}},
		{"POST /channel/transfer", `{"channel_id":"CHANNEL","new_admin_agent_id":"ALICE"}`,
			[7]string{itself, notAdmin, notAdmin, notAdmin, notAdmin, notAdmin, noKey}},

		// Last, because the old keys stop: everybody but nobody gets a new one.
		{"POST /agent/rotate_key", `{}`, everybody},
	}
}

// TestAccess: every operation is allowed to those for whom the specification says so.
func TestAccess(t *testing.T) {
	t.Parallel()
	table := accessRules()
	covered := map[string]bool{}
	for _, row := range table {
		covered[row.operation] = true
	}
	for operation := range testkit.Operations {
		if !covered[operation] {
			t.Errorf("no row says who may %s", operation)
		}
	}

	c := newCast(t)
	for _, row := range table {
		method, path, _ := strings.Cut(row.operation, " ")
		fresh := c.scene(t)
		for i, role := range roles {
			a := c.ask(role, method, path, fresh.Replace(row.body))
			got := fmt.Sprint(a.Status)
			if a.Status != http.StatusOK {
				got += " " + a.Code
			}
			if got != row.cells[i] || a.Charged {
				t.Errorf("%s %s as %s: %v, want %s", row.operation, row.body, role, a, row.cells[i])
			}
			if a.Status == http.StatusOK && (i < len(roles)-1) && mutates(row.operation) {
				fresh = c.scene(t)
			}
			if path == "/agent/block" && a.Status == http.StatusOK { // so that the next row finds things as they were
				who := map[string]*agent{"admin": c.alice, "member": c.bob, "former": c.carol, "banned": c.dave, "blocked": c.erin}[role]
				c.must(who, "/agent/unblock", `{"agent_id":`+quote(c.frank.ID)+`}`)
			}
		}
	}
}

// mutates reports whether a success would change what the next role meets.
func mutates(operation string) bool {
	for _, part := range []string{"/group/edit", "/group/leave", "/group/transfer", "/group/delete", "/channel/transfer", "/channel/delete",
		"request_account"} {
		if strings.Contains(operation, part) {
			return true
		}
	}
	return strings.HasSuffix(operation, "subscribe")
}
