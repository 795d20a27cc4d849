//go:build !noserver

package main

import (
	"encoding/csv"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// moderated is a database with agents, and the commands of an operator on it.
type moderated struct {
	t   *testing.T
	url string
	on  *store.Store
}

func newModerated(t *testing.T) *moderated {
	t.Helper()
	url := storetest.URL(t)
	on, err := store.Open(t.Context(), url, store.Limits{})
	testkit.NoError(t, err)
	t.Cleanup(on.Close)
	return &moderated{t, url, on}
}

// agent creates an account and returns its id.
func (m *moderated) agent(username string) uuid.UUID {
	m.t.Helper()
	const tan = "AAAA0000"
	agent := store.Agent{ID: uuid.Must(uuid.NewV7()), Username: username, Description: "I am " + username,
		IsDiscoverable: true, KeyHash: store.HashKey(username)}
	testkit.NoError(m.t, m.on.Transaction(m.t.Context(), func(tx *store.Tx) error {
		return tx.RequestAccount(m.t.Context(), username, "0xpayer", store.HashKey(tan), uuid.New())
	}))
	testkit.NoError(m.t, m.on.Transaction(m.t.Context(), func(tx *store.Tx) error {
		return tx.CreateAccount(m.t.Context(), agent, [][]byte{store.HashKey(tan)}, uuid.New())
	}))
	return agent.ID
}

// message sends a private message and returns its id and conversation.
func (m *moderated) message(from, to uuid.UUID, content string) (id, chat uuid.UUID) {
	m.t.Helper()
	id = uuid.Must(uuid.NewV7())
	err := m.on.Transaction(m.t.Context(), func(tx *store.Tx) error {
		sent, err := tx.SendMessage(m.t.Context(), store.OutgoingMessage{Kind: store.KindPrivate, To: to, Sender: from, ID: id, Content: content})
		if err == nil {
			chat = sent.ConversationID
		}
		return err
	})
	testkit.NoError(m.t, err)
	return id, chat
}

// try runs a command.
func (m *moderated) try(args ...string) (string, error) {
	m.t.Helper()
	ran := invoke(m.t, append(args, "--database-url", m.url)...)
	return ran.out, ran.err
}

// run wants that a command succeeds.
func (m *moderated) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("parley %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// because runs a command with a reason and an actor.
func (m *moderated) because(args ...string) string {
	m.t.Helper()
	return m.run(append(args, "--reason", "abuse", "--actor", "olga")...)
}

// TestModerateAgents: the commands that show, suspend, resume and rename accounts.
func TestModerateAgents(t *testing.T) {
	t.Parallel()
	m := newModerated(t)
	alice := m.agent("alice")
	m.agent("bob")
	for _, named := range []string{"alice", alice.String(), server.AgentID(alice)} {
		testkit.Contains(t, m.run("agents", "show", named), server.AgentID(alice), "active", "I am alice")
	}
	testkit.Contains(t, m.because("agents", "suspend", "alice", "--message", "write to us"), "alice", "is suspended")
	testkit.Contains(t, m.run("agents", "show", "alice", "--json"), `"state":"suspended"`, `"message":"write to us"`,
		`"is_discoverable":false`)
	m.because("agents", "resume", server.AgentID(alice))
	testkit.Contains(t, m.run("agents", "show", "alice", "--json"), `"state":"active"`, `"is_discoverable":true`)
	testkit.Contains(t, m.because("agents", "rename", "alice", "alicia"), "is now alicia")
	testkit.Contains(t, m.run("agents", "show", "alice"), "alicia")
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"nobody":          {[]string{"agents", "show", "nobody"}, `there is no agent "nobody"; use its id`},
		"not suspended":   {[]string{"agents", "resume", "alicia", "--reason", "x"}, "is not suspended"},
		"no reason":       {[]string{"agents", "suspend", "alicia"}, "--reason"},
		"an empty reason": {[]string{"agents", "suspend", "alicia", "--reason", " "}, "--reason is empty; say why"},
		"a long reason":   {[]string{"agents", "suspend", "alicia", "--reason", strings.Repeat("x", 1025)}, "more than 1024 characters"},
		"a long actor": {[]string{"agents", "suspend", "alicia", "--reason", "x", "--actor", strings.Repeat("x", 129)},
			"more than 128 characters"},
		"a long message": {[]string{"agents", "suspend", "alicia", "--reason", "x", "--message", strings.Repeat("x", 513)},
			"more than 512 characters"},
		"a taken username":  {[]string{"agents", "rename", "alicia", "bob", "--reason", "x"}, "already in use"},
		"no username":       {[]string{"agents", "rename", "alicia", "Bob", "--reason", "x"}, "1 to 32 characters from a-z, 0-9 and _"},
		"erase unconfirmed": {[]string{"agents", "erase", "alicia", "--reason", "x"}, "add --yes"},
		"no id":             {[]string{"messages", "remove", "alicia", "--reason", "x"}, `"alicia" is not an id`},
		"no message":        {[]string{"messages", "remove", uuid.NewString(), "--reason", "x"}, "message not found"},
		"no conversation":   {[]string{"conversations", "show", uuid.NewString()}, "chat not found"},
	} {
		if out, err := m.try(test.args...); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error with %q\n%s", name, err, test.says, out)
		}
	}
}

// TestModerateConversations: the commands that show, remove and restore a group chat.
func TestModerateConversations(t *testing.T) {
	t.Parallel()
	m := newModerated(t)
	alice, bob := m.agent("alice"), m.agent("bob")
	group := uuid.Must(uuid.NewV7())
	testkit.NoError(t, m.on.Transaction(t.Context(), func(tx *store.Tx) error {
		return tx.CreateConversation(t.Context(), store.KindGroup, group, alice, "planners", nil, true)
	}))
	testkit.NoError(t, m.on.Transaction(t.Context(), func(tx *store.Tx) error { return tx.Join(t.Context(), group, alice, bob) }))
	id := server.ConversationID(store.KindGroup, group)
	testkit.Contains(t, m.run("conversations", "show", id), "planners", server.AgentID(alice), "group")
	testkit.Contains(t, m.because("conversations", "remove", id, "--dry-run"), "would be removed")
	testkit.Contains(t, m.run("conversations", "show", id, "--json"), `"members":2`, `"deleted_at":null`, `"removed_at":null`)
	m.because("conversations", "remove", id)
	if out := m.run("conversations", "show", group.String(), "--json"); strings.Contains(out, `"removed_at":null`) ||
		strings.Contains(out, `"deleted_at":null`) {
		t.Errorf("the removed group chat: %s", out)
	}
	m.because("conversations", "restore", id)
	testkit.Contains(t, m.run("conversations", "show", id, "--json"), `"deleted_at":null`, `"removed_at":null`)
	_, chat := m.message(alice, bob, "hello")
	if _, err := m.try("conversations", "remove", chat.String(), "--reason", "x"); err == nil ||
		!strings.Contains(err.Error(), "private chat cannot be removed") {
		t.Errorf("a private chat: %v", err)
	}
}

// TestModerateMessagesAndErase: the commands that remove a message, export and erase an account, and the audit of all commands.
func TestModerateMessagesAndErase(t *testing.T) {
	t.Parallel()
	m := newModerated(t)
	alice, bob := m.agent("alice"), m.agent("bob")
	message, chat := m.message(alice, bob, "a vile secret")
	m.message(alice, bob, "another one")
	id := server.MessageID(message)
	testkit.Contains(t, m.because("messages", "remove", id, "--dry-run"), "would be removed: message 1 of conversation "+chat.String(),
		server.AgentID(alice))
	testkit.Contains(t, m.because("agents", "erase", "alice", "--dry-run"), "would be erased: 2 messages")
	if out := m.run("audit", "list", "--format=json"); out != "" {
		t.Errorf("a dry run is in the audit: %s", out)
	}
	if out := m.run("agents", "export", "alice"); strings.Count(out, `{"kind":"message",`) != 2 || !strings.Contains(out, "a vile secret") {
		t.Errorf("the export:\n%s", out)
	}
	began := time.Now()
	testkit.Contains(t, m.because("messages", "remove", id), "removed: message 1", "stored responses erased")
	if took := time.Since(began); took < store.SettledAfter {
		t.Errorf("stored responses are erased after %v; a call that runs may store another one for %v", took, store.SettledAfter)
	}
	testkit.Contains(t, m.because("agents", "erase", "alice", "--yes"), "erased: 2 messages", "0 conversations handed over",
		"stored responses erased")
	testkit.Contains(t, m.run("agents", "show", alice.String()), "erased_", "erased")
	testkit.Contains(t, m.because("agents", "erase", alice.String(), "--yes"),
		"stored responses erased") // an interrupted command can be run again

	rows, err := csv.NewReader(strings.NewReader(m.run("audit", "list", "--format=csv"))).ReadAll()
	testkit.NoError(t, err)
	action, target := slices.Index(rows[0], "action"), slices.Index(rows[0], "target")
	var actions []string
	for _, row := range rows[1:] {
		actions = append(actions, row[action]+" "+row[target])
	}
	want := []string{"agents.erase " + server.AgentID(alice), "agents.suspend " + server.AgentID(alice), "messages.remove " + id}
	if !slices.Equal(actions, want) {
		t.Errorf("the audit has %v, want %v", actions, want)
	}
	for filter, want := range map[string]int{
		"--action=messages.remove": 1, "--actor=olga": 3, "--actor=nobody": 0, "--target=" + id: 1, "--agent=" + alice.String(): 3,
		"--agent=bob":        0,
		"--until=2026-01-01": 0, "--since=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339): 3, "--limit=2": 2,
	} {
		out := m.run("audit", "list", "--format=json", filter)
		if got := strings.Count(out, "\n"); got != want {
			t.Errorf("%s: %d entries, want %d", filter, got, want)
		}
		for line := range strings.Lines(out) {
			if entry := map[string]any{}; json.Unmarshal([]byte(line), &entry) != nil || strings.Contains(line, "alice") ||
				entry["reason"] != "abuse" {
				t.Errorf("%s: %s", filter, line)
			}
		}
	}
	testkit.Contains(t, m.run("audit", "list"), "CREATED_AT", "agents.erase", "olga", "abuse")
}

// TestPaymentsRefund: a refund is recorded once, if the chain has a transfer from the payee to the payer of at most the payment; the
// sums, the export and the comparison with the chain know it, and an undeliverable payment cannot be redeemed any more.
func TestPaymentsRefund(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	good, other, failed := b.paid(0), b.paid(0), b.enter(store.PaymentFailed, 0, nil)
	owed := b.enter(store.PaymentUndeliverable, 1, map[string]string{"transaction": quote(hash(77)), "failure_reason": "'blocked'"})
	b.mine(owed, devnet.Payee, owed.amount, hash(77))
	give := func(account int, amount uint64, transaction string) {
		t.Helper()
		testkit.NoError(t, b.chain.Transfer(devnet.Payee, devnet.Accounts()[account].Address, amount,
			"0x"+strings.Repeat("ef", 31)+transaction[64:], transaction))
	}
	give(0, 4000, hash(11))
	give(0, 5001, hash(12))
	give(1, 5000, hash(13))
	refund := func(e entry, transaction string) (string, error) {
		return b.run("refund", e.id, "--transaction", transaction, "--reason", "a mistake", "--rpc-url", b.rpcURL)
	}
	wrong := func(name, says string, e entry, transaction string) {
		t.Helper()
		if out, err := refund(e, transaction); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error with %q\n%s", name, err, says, out)
		}
	}
	wrong("half a hash", "64 hex digits", good, "0xabc")
	wrong("too much", "a refund is at most the payment", good, hash(12))
	wrong("to another payer", "no transfer from the payee", good, hash(13))
	wrong("no transaction", "no receipt", good, hash(99))
	wrong("a failed payment", "no money was taken", failed, hash(11))
	for e, transaction := range map[entry]string{good: hash(11), owed: hash(13)} {
		_, err := refund(e, "0x"+strings.ToUpper(transaction[2:]))
		testkit.NoError(t, err)
	}
	wrong("twice", "is refunded already", good, hash(11))
	wrong("another payment with the same transaction", "has refunded another payment", other, hash(11))

	testkit.Contains(t, b.text("show", owed.id, "--json"), `"failure_reason":"refunded"`, `"refund_transaction":"`+hash(13))
	if out := b.text("export"); strings.Count(out, hash(11)) != 1 || !strings.Contains(out, ",4000,"+hash(11)) {
		t.Errorf("the export:\n%s", out)
	}
	testkit.Contains(t, b.text("summary", "--json"), `"refunded":{"calls":2,"amount":9000,"amount_usd":"0.009000"}},"settlement"`)
	if c, err := b.reconcile(); err != nil || c.Refunded != 9000 || c.Left != 5001 || c.Contradictions != 0 || c.Before != 0 {
		t.Errorf("the comparison with the chain: %v, %+v", err, c)
	}
}
