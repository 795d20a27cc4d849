//go:build plans

package service

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// plan is a node of EXPLAIN's JSON.
type plan struct {
	NodeType  string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	IndexName string `json:"Index Name"`
	Plans     []plan
}

// walk visits the node and all below it.
func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, below := range p.Plans {
		below.walk(visit)
	}
}

// TestPlans loads a million messages, a hundred thousand agents and a channel of a hundred thousand subscribers, makes
// every call over HTTP with real payments, and looks at the plan of every statement that PostgreSQL ran for it
// (auto_explain): none may scan a table that grows. `make plans` runs it and keeps the list in bin/plans.txt.
func TestPlans(t *testing.T) {
	folder, err := os.MkdirTemp("", "parley-plans-")
	testkit.NoError(t, err)
	postgres, err := embedded.Start(t.Context(), embedded.Options{Folder: folder, Volatile: true, Progress: os.Stderr})
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := postgres.Stop(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(postgres.Folder()); err != nil {
			t.Error(err)
		}
	})
	seedForPlans(t, postgres.URL("postgres"))

	settings := "-c session_preload_libraries=auto_explain -c auto_explain.log_min_duration=0 -c auto_explain.log_format=json " +
		"-c auto_explain.log_parameter_max_length=0"
	w := newWorldOn(t, postgres.URL("postgres")+"&options="+strings.ReplaceAll(url.QueryEscape(settings), "+", "%20"))
	log := filepath.Join(postgres.Folder(), "postgres.log")
	var report bytes.Buffer
	bad := 0
	var from int64
	for _, call := range callsForPlans(t, w) {
		from = size(t, log)
		call.make()
		statements := explained(t, log, from)
		if len(statements) == 0 {
			t.Errorf("%s: no statement was logged", call.name)
		}
		fmt.Fprintf(&report, "\n%s\n", call.name)
		for _, statement := range statements {
			var nodes []string
			statement.Plan.walk(func(node plan) {
				text := node.NodeType
				if node.IndexName != "" {
					text += " " + node.IndexName
				} else if node.Relation != "" {
					text += " on " + node.Relation
				}
				if node.NodeType == "Seq Scan" {
					bad++
					text = "!! " + text
					t.Errorf("%s scans %s: %s", call.name, node.Relation, statement.text())
				}
				if node.Relation != "" || node.IndexName != "" {
					nodes = append(nodes, text)
				}
			})
			slices.Sort(nodes)
			fmt.Fprintf(&report, "    %s\n        -> %s\n", statement.text(), strings.Join(slices.Compact(nodes), "; "))
		}
	}
	testkit.NoError(t, os.MkdirAll("../../bin", 0o755))
	testkit.NoError(t, os.WriteFile("../../bin/plans.txt", report.Bytes(), 0o644))
	fmt.Println(report.String())
	fmt.Printf("statements with a scan of a table: %d\n", bad)
}

type explainedStatement struct {
	Query string `json:"Query Text"`
	Plan  plan
}

func (s explainedStatement) text() string {
	text := strings.Join(strings.Fields(s.Query), " ")
	if len(text) > 300 {
		text = text[:300] + " …"
	}
	return text
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	testkit.NoError(t, err)
	return info.Size()
}

// explained reads the plans that were logged since an offset, without repetitions.
func explained(t *testing.T, path string, from int64) []explainedStatement {
	t.Helper()
	time.Sleep(50 * time.Millisecond) // the log is written by another process
	file, err := os.Open(path)
	testkit.NoError(t, err)
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(file)
	testkit.NoError(t, err)
	var statements []explainedStatement
	seen := map[string]bool{}
	for _, part := range strings.Split(string(text), "plan:\n")[1:] {
		var statement explainedStatement
		if err := json.NewDecoder(strings.NewReader(part)).Decode(&statement); err != nil {
			t.Fatalf("a plan in the log cannot be read: %v\n%.300s", err, part)
		}
		if !seen[statement.Query] {
			seen[statement.Query] = true
			statements = append(statements, statement)
		}
	}
	return statements
}

func seedForPlans(t *testing.T, databaseURL string) {
	t.Helper()
	database, err := store.Open(t.Context(), databaseURL, store.Limits{})
	testkit.NoError(t, err)
	defer database.Close()
	if _, err := database.Migrate(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	size := storetest.Seeding{Agents: 100_000, Conversations: 20_000, Messages: 1_000_000, Subscribers: 100_000}
	testkit.NoError(t, storetest.Seed(t.Context(), databaseURL, size, func(step string) { t.Log(step) }))
	connection, err := pgx.Connect(t.Context(), databaseURL)
	testkit.NoError(t, err)
	defer connection.Close(context.Background())
	for _, statement := range []string{
		// A ledger, blocks, reactions, registrations and what operators did, of a size at which a scan would be a mistake.
		`INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash,
			state, lease_until, created_at, updated_at, response)
		 SELECT gen_random_uuid(), 2, 'exact', 'eip155:84532', '0xa', '0xb' || n % 1000, '0xc' || n, '0xd', 1000, now(), 'getOwnAgent', NULL,
		sha256(n::text::bytea), sha256(n::text::bytea),
			'delivered', now(), now(), now(), 'x' FROM generate_series(1, 200000) n`,
		`INSERT INTO payment_channels (id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer, withdraw_delay, salt, charged,
			signed_max, signature,
			balance, claimed, withdraw_requested_at, refund_nonce, synced_at, state, used_at, created_at)
		 SELECT '0x' || lpad(n::text, 64, '0'), '0xb' || n, '0xb' || n, 'eip155:84532', '0xa', '0xd', '0xe', 86400, '0x', 0, 0, '', 1000000, 0, 0,
		0, now(), 'open',
			now(), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO suspensions (agent_id, message, was_listed, created_at) SELECT id, '', false, now() FROM agents LIMIT 20000`,
		`INSERT INTO reserved_usernames (username_hash, created_at) SELECT sha256(n::text::bytea), now() FROM generate_series(1, 20000) n`,
		`INSERT INTO conversation_removals (conversation_id, created_at) SELECT id, now() FROM conversations LIMIT 5000`,
		`INSERT INTO registrations (username, tan_hash, payer, expires_at) SELECT 'reserved_' || n, sha256('x'), '0xb', now() FROM
			generate_series(1, 20000) n`,
		`INSERT INTO blocks (blocker_id, blocked_id, created_at) SELECT a.id, b.id, now() FROM (SELECT id, row_number() OVER () n FROM agents
			LIMIT 20000) a JOIN (SELECT id, row_number() OVER () n FROM agents LIMIT 20001) b ON b.n = a.n + 1`,
		`INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at) SELECT conversation_id, number, sender_id, '👍', now() FROM
			messages LIMIT 100000`,
		`INSERT INTO notices (agent_id, type, conversation_id, source_name, actor_id, created_at) SELECT a.id, 'added', c.id, c.name, c.admin_id,
			now() FROM (SELECT id FROM agents LIMIT 20000) a CROSS JOIN (SELECT id, name, admin_id FROM conversations WHERE kind = 'group' LIMIT 5)
			c`,
		`VACUUM ANALYZE`,
	} {
		if _, err := connection.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Logf("seeded in %v", time.Since(began).Round(time.Second))
}

type planCall struct {
	name string
	make func()
}

// callsForPlans puts alice and bob into the largest group chat and channel, and lets them use everything.
func callsForPlans(t *testing.T, w *world) []planCall {
	t.Helper()
	alice, bob := w.agent("plans_alice"), w.agent("plans_bob")
	chat, private := alice.send(bob, "a first message")
	uuids := map[string]string{}
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		for _, kind := range []string{"group", "channel"} {
			var id string
			if err := c.QueryRow(ctx, `SELECT id::text FROM conversations WHERE kind = $1 ORDER BY last_number DESC LIMIT 1`,
				kind).Scan(&id); err != nil {
				return err
			}
			uuids[kind] = id
			for _, statement := range []string{
				`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at) SELECT $1::uuid, id, 'member', 0, 0,
					now() FROM agents WHERE username LIKE 'plans\_%'`,
				`UPDATE conversations SET member_count = member_count + 2, admin_id = (SELECT id FROM agents WHERE username = 'plans_alice') WHERE id =
					$1::uuid`,
				`INSERT INTO notices (agent_id, type, conversation_id, source_name, actor_id, created_at) SELECT id, 'added', $1::uuid, 'plans', id,
					now() FROM agents WHERE username LIKE 'plans\_%'`,
			} {
				if _, err := c.Exec(ctx, statement, id); err != nil {
					return err
				}
			}
		}
		return nil
	})
	conversation := func(kind string) string { return server.ConversationID(kind, uuid.MustParse(uuids[kind])) }
	group, channel := conversation(store.KindGroup), conversation(store.KindChannel)
	groupMessage := alice.pay(t, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"hello group"}`).Field(t, "message_id")

	var calls []planCall
	add := func(who *agent, method, path, body string) {
		calls = append(calls, planCall{method + " " + path + " " + body, func() {
			a := w.call(method, path, body, "X-API-KEY", who.Key, "PAYMENT-SIGNATURE", w.signFor(who.Wallet, method, strings.Split(path, "?")[0]))
			a.Want(t, fmt.Sprintf("%s %s %s", method, path, body), 200)
		}})
	}
	post := func(who *agent, path, body string) {
		add(who, http.MethodPost, path, strings.NewReplacer("GROUP", group, "CHANNEL", channel, "CHAT", chat, "PM", private, "GM", groupMessage,
			"BOB", bob.ID, "ALICE", alice.ID).Replace(body))
	}
	post(alice, "/register/request_account", `{"requested_username":"plans_carol"}`)
	add(alice, http.MethodGet, "/agent/me", "")
	post(alice, "/agent/edit", `{"description":"looked at"}`)
	post(alice, "/agent/profile", `{"username":"plans_bob"}`)
	post(alice, "/agent/profile", `{"agent_id":"BOB"}`)
	post(alice, "/chat/private/send", `{"recipient_agent_id":"BOB","content":"another message"}`)
	post(bob, "/chat/private/info", `{"chat_id":"CHAT"}`)
	post(bob, "/chat/private/messages", `{"chat_id":"CHAT"}`)
	post(bob, "/chat/private/search", `{"chat_id":"CHAT","query":"message"}`)
	post(alice, "/chat/group/send", `{"chat_id":"GROUP","content":"to many"}`)
	post(alice, "/chat/group/info", `{"chat_id":"GROUP"}`)
	post(bob, "/chat/group/messages", `{"chat_id":"GROUP"}`)
	post(bob, "/chat/group/messages", `{"chat_id":"GROUP","page":7}`)
	post(bob, "/chat/group/search", `{"chat_id":"GROUP","query":"hello group"}`)
	post(alice, "/chat/group/pin", `{"chat_id":"GROUP","message_id":"GM"}`)
	post(alice, "/chat/group/edit", `{"chat_id":"GROUP","name":"renamed"}`)
	post(alice, "/channel/send", `{"channel_id":"CHANNEL","content":"to a hundred thousand"}`)
	post(alice, "/channel/info", `{"channel_id":"CHANNEL"}`) // with bans
	post(bob, "/channel/info", `{"channel_id":"CHANNEL"}`)
	post(bob, "/channel/messages", `{"channel_id":"CHANNEL"}`)
	post(bob, "/channel/search", `{"channel_id":"CHANNEL","query":"thousand"}`)
	post(bob, "/channel/unsubscribe", `{"channel_id":"CHANNEL"}`)
	post(bob, "/channel/subscribe", `{"channel_id":"CHANNEL"}`)
	post(bob, "/message/react", `{"message_id":"GM","emoji":"👍"}`)
	post(bob, "/message/react/remove", `{"message_id":"GM"}`)
	add(bob, http.MethodGet, "/agent/unread?mark_read=false", "")
	add(bob, http.MethodGet, "/agent/unread?wait=60&mark_read=false", "")
	page := bob.polls("?mark_read=false", bob.signsPoll())
	for _, of := range []string{"messages and notices", "messages"} { // the first page has all the notices
		calls = append(calls, planCall{"GET /agent/unread?read_through=" + of, func() {
			page = bob.polls("?read_through="+page.Field(t, "cursor"), bob.signsPoll())
			page.Require(t, of, http.StatusOK)
		}})
	}
	calls = append(calls, planCall{"GET /agent/unread?read_through=messages&wait=60, while it waits", func() {
		agent, err := w.store.AgentByUsername(t.Context(), "plans_bob")
		testkit.NoError(t, err)
		unread, err := w.store.Unread(t.Context(), agent.ID, store.UnreadPage{Number: 1, Size: store.MaxPage, Most: store.LongPage})
		testkit.NoError(t, err)
		if _, err = w.store.HaveUnread(t.Context(), []store.Waiting{{Agent: agent.ID, Through: unread.Through()}}); err != nil {
			t.Error(err)
		}
	}})
	calls = append(calls, planCall{"GET /agent/unread, a long page", func() {
		agent, err := w.store.AgentByUsername(t.Context(), "plans_bob")
		testkit.NoError(t, err)
		if unread, err := w.store.Unread(t.Context(), agent.ID,
			store.UnreadPage{Number: 10, Size: store.MaxPage, Most: store.LongPage}); err != nil || len(unread.Messages) == 0 {
			t.Errorf("page 10 has %v (%v), want messages", unread, err)
		}
	}})
	add(bob, http.MethodGet, "/agent/unread", "")
	post(alice, "/agent/block", `{"agent_id":"BOB"}`)
	post(alice, "/agent/unblock", `{"agent_id":"BOB"}`)
	post(alice, "/search/agents", `{"query":"plans_bob"}`)
	post(alice, "/search/groups", `{"query":"renamed"}`)
	post(alice, "/search/channels", `{"query":"storm warnings"}`)
	calls = append(calls, planCall{"parley_settled_seconds", func() {
		if ages, err := w.store.LastSettled(t.Context(), []string{"getOwnAgent", "searchAgents", "rotateKey"}); err != nil || len(ages) != 2 {
			t.Errorf("the last settlements are %v (%v), want two", ages, err)
		}
	}})
	return calls
}

func (a *agent) pay(t *testing.T, path, body string) testkit.Reply {
	t.Helper()
	return a.w.pay(a.Wallet, path, body, "X-API-KEY", a.Key)
}
