package service

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// operator acts on the world's database from another process than the server, as the command line does.
type operator struct {
	w  *world
	on *store.Store
	by store.Operator
}

func (w *world) operator() *operator {
	w.T.Helper()
	on, err := store.Open(w.T.Context(), w.DatabaseURL, store.Limits{})
	if err == nil {
		err = on.ReadClock(w.T.Context())
	}
	testkit.NoError(w.T, err)
	w.T.Cleanup(on.Close)
	return &operator{w, on, store.Operator{Actor: "olga", Reason: "abuse"}}
}

// must ends the test if an action failed.
func (o *operator) must(err error) {
	o.w.T.Helper()
	testkit.NoError(o.w.T, err)
}

// id is the UUID of an id as agents see it.
func (o *operator) id(of string) uuid.UUID {
	o.w.T.Helper()
	id, err := server.ParseID(of)
	o.must(err)
	return id
}

func (o *operator) suspend(a *agent, message string) {
	o.w.T.Helper()
	o.must(o.on.SuspendAgent(o.w.T.Context(), o.by, o.id(a.ID), message))
	o.becomes(a, http.StatusForbidden)
}

func (o *operator) resume(a *agent) {
	o.w.T.Helper()
	o.must(o.on.ResumeAgent(o.w.T.Context(), o.by, o.id(a.ID)))
	o.becomes(a, http.StatusOK)
}

// becomes waits until the server returns this status to the agent.
func (o *operator) becomes(a *agent, status int) {
	o.w.T.Helper()
	if !testkit.Eventually(store.SettledAfter, func() bool { return o.w.me(a, a.Key).Status == status }) {
		o.w.T.Fatalf("GET /agent/me of %s: %v, want %d", a.Name, o.w.me(a, a.Key), status)
	}
}

// audited checks the newest entry of the audit.
func (o *operator) audited(action, target string) {
	o.w.T.Helper()
	for entry, err := range o.on.Audit(o.w.T.Context(), store.AuditFilter{}) {
		o.must(err)
		if entry.Action != action || entry.TargetID != o.id(target) || entry.Actor != "olga" || entry.Reason != "abuse" ||
			entry.CreatedAt.IsZero() {
			o.w.T.Errorf("the newest entry of the audit is %+v, want %s of %s", entry, action, target)
		}
		return
	}
	o.w.T.Errorf("the audit is empty, want %s of %s", action, target)
}

// found lists the usernames that a search of agents finds.
func (a *agent) found(query string) string {
	a.w.T.Helper()
	reply := a.ask("/search/agents", fields{"query": query})
	reply.Require(a.w.T, "search", http.StatusOK)
	return string(reply.Body)
}

// TestSuspendedAgent: each call with the key of a suspended agent is refused and not charged, unless it repeats one that was paid
// before. A resumed agent has everything back.
func TestSuspendedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	before := w.sign(alice.Wallet, "/chat/private/send")
	alice.sendWith(before, bob, "paid before").Require(t, "a message", 200)

	o.suspend(alice, "write to abuse@parley.example")
	o.audited("agents.suspend", alice.ID)
	revenue, settles := w.Revenue(), w.settles.Load()
	for path, request := range map[string]fields{
		"/chat/private/send": {"recipient_agent_id": bob, "content": "again"}, "/agent/rotate_key": {}, "/agent/edit": {"is_discoverable": true},
		"/search/agents": {"query": "bob"}, "/chat/group/create": {"name": "ours", "initial_member_ids": []*agent{bob}},
	} {
		refused := alice.ask(path, request)
		refused.WantRefused(t, path, http.StatusForbidden, "suspended")
		if !strings.HasSuffix(refused.Message, ": write to abuse@parley.example") {
			t.Errorf("%s: %q, want what the operator tells the agent", path, refused.Message)
		}
	}
	w.call(http.MethodPost, "/agent/rotate_key", "{}", "X-API-KEY", alice.Key).Want(t, "without a payment", http.StatusPaymentRequired,
		"payment_required")
	again := alice.sendWith(before, bob, "paid before")
	if again.Require(t, "what was paid before", 200); again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("what was paid before: %v, want the stored response", again)
	}
	if w.Revenue() != revenue || w.settles.Load() != settles || w.Count("SELECT count(*) FROM messages") != 1 {
		t.Errorf("refused calls brought %d, with %d settlements, and %d messages", w.Revenue()-revenue, w.settles.Load()-settles,
			w.Count("SELECT count(*) FROM messages"))
	}
	o.must(o.on.SuspendAgent(t.Context(), o.by, o.id(alice.ID), ""))
	if !testkit.Eventually(store.SettledAfter, func() bool { return w.me(alice, alice.Key).Message == store.ErrSuspended.Message }) {
		t.Errorf("without a text: %v", w.me(alice, alice.Key))
	}

	o.resume(alice)
	o.audited("agents.resume", alice.ID)
	alice.must("/agent/rotate_key", fields{})
	if err := o.on.ResumeAgent(t.Context(), o.by, o.id(alice.ID)); err == nil ||
		!strings.Contains(err.Error(), store.ErrNotSuspended.Error()) {
		t.Errorf("resumed twice: %v", err)
	}
}

// TestPeersOfSuspendedAgent: others keep what they have of a suspended agent, and cannot find it, write to it or make it an admin.
func TestPeersOfSuspendedAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, carol := w.agent("alice"), w.agent("bob"), w.agent("carol")
	o := w.operator()
	chat, _ := alice.send(bob, "a message that stays")
	group, channel := bob.createGroup("planners", alice, carol), bob.channel("news")
	payer := w.channelPayer(carol.Wallet)
	carol.sendWith(payer.sign(sendPath, 5000, 50_000), alice, "by payment channel").Require(t, "before", 200)
	o.suspend(alice, "")

	revenue, messages := w.Revenue(), w.Count("SELECT count(*) FROM messages")
	for name, refused := range map[string]testkit.Reply{
		"a private message": bob.ask("/chat/private/send", fields{"recipient_agent_id": alice, "content": "hello?"}),
		"a voucher":         carol.sendWith(payer.sign(sendPath, 10_000, 0), alice, "hello?"),
		"a group chat":      bob.groupCall("transfer", group, "new_admin_agent_id", alice.ID),
		"a successor":       bob.groupCall("leave", group, "successor_agent_id", alice.ID),
		"a channel":         bob.ask("/channel/transfer", fields{"channel_id": channel, "new_admin_agent_id": alice}),
	} {
		refused.WantRefused(t, name, http.StatusForbidden, "agent_suspended")
	}
	if w.Revenue() != revenue || w.Count("SELECT count(*) FROM messages") != messages {
		t.Errorf("refused calls brought %d and %d messages", w.Revenue()-revenue, w.Count("SELECT count(*) FROM messages")-messages)
	}
	if page := bob.page(chat); len(page) != 1 || page[0].Content != "a message that stays" || page[0].SenderUsername != "alice" {
		t.Errorf("bob reads %+v", page)
	}
	if members := carol.groupOf(group); members != "bob* alice carol" {
		t.Errorf("the members are %s", members)
	}
	if found := carol.found("alice"); strings.Contains(found, alice.ID) {
		t.Errorf("carol finds %s", found)
	}
	carol.ask("/agent/profile", fields{"username": "alice"}).Want(t, "the profile", 200)

	o.resume(alice)
	bob.send(alice, "welcome back")
	if found := carol.found("alice"); !strings.Contains(found, alice.ID) {
		t.Errorf("carol finds %s", found)
	}
	alice.must("/agent/edit", fields{"is_discoverable": false})
	o.suspend(alice, "")
	o.resume(alice)
	if found := carol.found("alice"); strings.Contains(found, alice.ID) {
		t.Errorf("alice did not want to be found before the suspension; carol finds %s", found)
	}
}

// TestEditDuringSuspension: an edit that asks to be listed, and is executed while a suspension is committed, does not list the account
// before it is resumed.
func TestEditDuringSuspension(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	alice.must("/agent/edit", fields{"is_discoverable": false})
	o := w.operator()
	held := make(chan func(), 1)
	mend := w.breakFacilitator(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/settle" { // the dry run of the edit is over
			held <- w.hold(`WITH suspended AS (INSERT INTO suspensions (agent_id, message, was_listed, created_at) VALUES ($1, '', false, now()))
				UPDATE agents SET is_discoverable = false WHERE id = $1`, o.id(alice.ID))
		}
		return false
	})
	defer mend()
	edit := func() { alice.must("/agent/edit", fields{"is_discoverable": true}) }
	w.whileWaiting(edit, func() { (<-held)() })
	if listed := w.Count("SELECT count(*) FROM agents WHERE is_discoverable"); listed != 0 {
		t.Error("the suspended account is listed")
	}
	mend()
	o.resume(alice)
	if listed := w.Count("SELECT count(*) FROM agents WHERE is_discoverable"); listed != 1 {
		t.Error("the edit that was paid for is lost")
	}
}

// TestSuspendedAgentIsRefunded: a suspended agent gets what is left in its payment channel, and its vouchers are not charged.
func TestSuspendedAgentIsRefunded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	payer := w.channelPayer(alice.Wallet)
	first := payer.sign(sendPath, 5000, 50_000)
	alice.sendWith(first, bob, "one").Require(t, "a message", 200)
	o.suspend(alice, "")
	alice.sendWith(payer.sign(sendPath, 10_000, 0), bob, "two").WantRefused(t, "a voucher", http.StatusForbidden, "suspended")
	alice.sendWith(first, bob, "one").Want(t, "the deposit again", http.StatusOK)
	before := w.Ledger.Balance(testkit.Address(alice.Wallet))
	payer.refund("/agent/me", 5000, 0).Want(t, "the refund", http.StatusNoContent)
	if got := w.Ledger.Balance(testkit.Address(alice.Wallet)); got != before+45_000 {
		t.Errorf("the refund was %d, want 45000", got-before)
	}
	w.checkChannels()
}
