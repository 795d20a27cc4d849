package service

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// tables lists all tables.
func (w *world) tables() (names []string) {
	w.T.Helper()
	w.Scan(`SELECT array_agg(table_name::text ORDER BY table_name) FROM information_schema.tables
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`, nil, &names)
	return names
}

// traces counts the rows, by table, in which a text occurs in any column: as text, or as the hex digits of bytes.
func (w *world) traces(text string) []string {
	w.T.Helper()
	var found []string
	w.Connect(func(ctx context.Context, c *pgx.Conn) error {
		for _, table := range w.tables() {
			var rows int
			query := "SELECT count(*) FROM " + table + " t WHERE strpos(lower(CAST(t AS text)), lower($1)) > 0"
			if err := c.QueryRow(ctx, query, text).Scan(&rows); err != nil {
				return err
			}
			if rows > 0 {
				found = append(found, fmt.Sprintf("%d in %s", rows, table))
			}
		}
		return nil
	})
	return found
}

// books are the sums of the ledger by day, operation, state and payer.
func (w *world) books() (lines []string) {
	w.T.Helper()
	w.Scan(`SELECT array_agg(line ORDER BY line) FROM (
		SELECT concat_ws(' ', created_at::date, operation, state, scheme, payer, count(*), sum(amount), sum(deposit_amount), count(DISTINCT
		transaction)) AS line
		FROM payments GROUP BY created_at::date, operation, state, scheme, payer) b`, nil, &lines)
	return lines
}

// full is a world in which an agent has left something in every table.
type full struct {
	*world
	agent, peer, third     *agent
	chat, group, own, news string
	secrets                []string
}

// trace begins what the agent of a full world writes. It does not occur by chance: ids have no i, l, o and u.
const trace = "quillivoxolu"

func newFull(t *testing.T) *full {
	t.Helper()
	return newWorld(t, withChannels).full()
}

func (w *world) full() *full {
	t := w.T
	t.Helper()
	f := &full{world: w, agent: w.agent("zorblax"), peer: w.agent("peer"), third: w.agent("third")}
	a := f.agent
	f.chat, _ = a.send(f.peer, trace+" in the private chat")
	f.peer.send(a, "an answer that stays")
	f.group, f.own, f.news = f.peer.createGroup("planners", a, f.third), a.createGroup("heirloom", f.third, f.peer), a.channel("zorblax news")
	alone := a.createGroup("zorblax alone")
	f.third.must("/chat/group/request_access", fields{"chat_id": alone})
	pinned := a.sendGroup(f.group, trace+" in the group chat")
	f.peer.groupMust("pin", f.group, "message_id", pinned)
	mine := f.peer.sendGroup(f.group, "before and after")
	a.groupMust("send", f.group, "content", trace+" answers", "reply_to_message_id", mine)
	f.peer.groupMust("pin", f.group, "message_id", mine)
	a.sendGroup(f.group, trace+" after it")
	a.sendGroup(alone, trace+" alone")
	f.peer.must("/channel/subscribe", fields{"channel_id": f.news})
	a.broadcast(f.news, trace+" in the channel")
	a.react(mine, "👍")
	a.block(f.third)
	f.third.block(a)
	payer := w.channelPayer(a.Wallet)
	a.sendWith(payer.sign(sendPath, 5000, 50_000), f.peer, trace+" by payment channel").Require(t, "a voucher", 200)
	a.must("/agent/edit", fields{"description": trace + " describes itself"})
	f.secrets = append(f.secrets, hex.EncodeToString(store.HashKey(a.Key)))
	a.Key = a.ask("/agent/rotate_key", fields{}).Field(t, "api_key")
	w.Secret(a.Key)
	w.me(a, a.Key).Require(t, "the new key", http.StatusOK)
	f.secrets = append(f.secrets, hex.EncodeToString(store.HashKey(a.Key)), "zorblax", trace)
	return f
}

// TestErasedAgent: erasing leaves nothing of an agent in any table, and others keep their numbers, messages, pins and conversations.
func TestErasedAgent(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	o := f.operator()
	agent := o.id(f.agent.ID)
	if _, err := o.on.EraseAgent(t.Context(), o.by, agent); err == nil || !strings.Contains(err.Error(), store.ErrNotSuspendedYet.Error()) {
		t.Fatalf("an account that is not suspended: %v", err)
	}
	for _, secret := range f.secrets {
		if len(f.traces(secret)) == 0 {
			t.Errorf("the test finds no trace of %q before", secret)
		}
	}
	const texts = `SELECT count(*) FROM agents a, jsonb_each_text(to_jsonb(a)) e JOIN information_schema.columns c
		ON c.table_name = 'agents' AND c.column_name = e.key AND c.data_type = 'text' WHERE a.id = $1 AND e.key <> 'username' AND e.value `
	if n := f.Count(texts+"= ''", agent); n != 0 {
		t.Errorf("newFull gives %d texts of the account no value", n)
	}
	o.suspend(f.agent, "zorblax, write to us")
	books, revenue := f.books(), f.Revenue()
	counted, err := o.on.CountErasure(t.Context(), agent)
	o.must(err)
	erased, err := o.on.EraseAgent(t.Context(), o.by, agent)
	o.must(err)
	o.must(o.on.FinishErasure(t.Context(), agent))
	f.eraseReads()
	o.audited("agents.erase", f.agent.ID)
	want := store.Erasure{Messages: 7, Reactions: 1, Blocks: 2, Memberships: 2, Payments: erased.Payments, HandedOver: 1, Deleted: 2}
	if erased != want || counted != want || erased.Payments == 0 {
		t.Errorf("counted %+v and erased %+v, want %+v", counted, erased, want)
	}
	for _, secret := range f.secrets {
		if found := f.traces(secret); len(found) > 0 {
			t.Errorf("%q is still there: %v", secret, found)
		}
	}
	if n := f.Count(texts+"<> ''", agent); n != 0 {
		t.Errorf("%d texts of the account are left", n)
	}
	if replies := f.Count(`SELECT count(*) FROM messages WHERE reply_to IS NOT NULL`); replies != 0 {
		t.Errorf("%d messages of the agent still say what they answer", replies)
	}
	if stored := f.Count(`SELECT count(*) FROM payments WHERE response IS NOT NULL AND agent_id = $1`, agent); stored != 0 {
		t.Errorf("%d stored responses of the agent are left", stored)
	}
	if diff := cmp.Diff(books, f.books()); diff != "" || f.Revenue() != revenue {
		t.Errorf("the books (-before +after):\n%s", diff)
	}
	if gaps := f.Count(testkit.NumberGaps); gaps != 0 {
		t.Errorf("%d conversations have gaps", gaps)
	}
	f.checkChannels()
	f.checkConversations()
	f.checkPeers()

	o.becomes(f.agent, http.StatusUnauthorized)
	f.pay(f.third.Wallet, "/register/request_account", `{"requested_username":"zorblax"}`).WantRefused(t, "the username", http.StatusConflict,
		"username_taken")
	f.pay(f.third.Wallet, "/register/request_account", `{"requested_username":"erased_0abc"}`).WantRefused(t, "a name as of an erased account",
		http.StatusConflict, "username_taken")
	for name, err := range map[string]error{
		"resume": o.on.ResumeAgent(t.Context(), o.by, agent), "rename": o.on.RenameAgent(t.Context(), o.by, agent, "again"),
		"suspend": o.on.SuspendAgent(t.Context(), o.by, agent, ""),
	} {
		if err == nil || !strings.Contains(err.Error(), store.ErrErased.Error()) {
			t.Errorf("%s an erased account: %v", name, err)
		}
	}
}

// eraseReads erases the stored reads since the agent was created, as parley agents erase does.
func (f *full) eraseReads() {
	f.T.Helper()
	operations, err := parley.Reads()
	if err == nil {
		_, err = f.store.EraseReads(f.T.Context(), store.StoredReads{Operations: operations, Since: f.agentSince()})
	}
	if err != nil {
		f.T.Error(err)
	}
}

// agentSince is when the agent was created.
func (f *full) agentSince() (at time.Time) {
	f.T.Helper()
	f.Scan("SELECT created_at FROM agents WHERE id = $1", []any{f.operator().id(f.agent.ID)}, &at)
	return at
}

// checkPeers checks what others see of the erased agent.
func (f *full) checkPeers() {
	t := f.T
	t.Helper()
	unread := f.third.unread(nil, nil, new(false))
	if unread.TotalUnread != 4 || int64(len(unread.Messages)) != 4 {
		t.Errorf("the third has %d unread messages and gets %d, want four", unread.TotalUnread, len(unread.Messages))
	}
	page := f.peer.page(f.chat)
	if len(page) != 3 || page[0].Content != removedText || page[1].Content != "an answer that stays" || page[2].Content != removedText ||
		!strings.HasPrefix(page[2].SenderUsername, "erased_") || page[2].SenderID != f.agent.ID {
		t.Errorf("the peer reads %+v", page)
	}
	if members, pins := f.peer.groupOf(f.group), f.peer.group(f.group).PinnedMessages; members != "peer* third" || len(pins) != 1 ||
		pins[0].Content != "before and after" {
		t.Errorf("the group chat has the members %s and the pins %+v", members, pins)
	}
	if members := f.third.groupOf(f.own); members != "third* peer" {
		t.Errorf("the agent's group chat has the members %s, want it handed over to the one that joined first", members)
	}
	if notices := f.third.notices(true); !slices.ContainsFunc(notices,
		func(n string) bool { return strings.HasSuffix(n, `made_admin group_chat "heirloom"`) }) {
		t.Errorf("the heir is told %v", notices)
	}
	f.peer.ask("/channel/messages", fields{"channel_id": f.news}).WantRefused(t, "the agent's channel", http.StatusGone, "deleted")
	for path, body := range map[string]fields{
		"/agent/profile": {"agent_id": f.agent}, "/chat/private/send": {"recipient_agent_id": f.agent, "content": "hello?"},
		"/chat/group/edit": {"chat_id": f.group, "add_member_ids": []*agent{f.agent}},
	} {
		f.peer.ask(path, body).WantRefused(t, path, http.StatusNotFound, "agent_not_found")
	}
	if found := f.peer.found("erased"); strings.Contains(found, f.agent.ID) {
		t.Errorf("the peer finds %s", found)
	}
}

// TestErasureWaitsForPayments: an account whose payments are open or undeliverable is not erased.
func TestErasureWaitsForPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	o := w.operator()
	alice.send(bob, "hello")
	o.must(o.on.SuspendAgent(t.Context(), o.by, o.id(alice.ID), ""))
	for state, want := range map[string]error{
		"state = 'unknown', request = 'x', payload = 'x'": store.ErrOpenPayments,
		"state = 'undeliverable', response = NULL":        store.ErrOwedPayments,
	} {
		w.Exec("UPDATE payments SET " + state + ", failure_reason = 'blocked' WHERE operation = 'sendPrivateMessage'")
		if _, err := o.on.EraseAgent(t.Context(), o.by, o.id(alice.ID)); err == nil || !strings.Contains(err.Error(), want.Error()) {
			t.Errorf("%s: %v, want %v", state, err, want)
		}
		w.Exec("UPDATE payments SET state = 'delivered', request = NULL, payload = NULL WHERE operation = 'sendPrivateMessage'")
	}
	if _, err := o.on.EraseAgent(t.Context(), o.by, o.id(alice.ID)); err != nil {
		t.Error(err)
	}
}

// exported is what an export has of each column that refers to an agent: kind and member.
var exported = map[string]string{
	"audit.agent_id": "audit agent_id", "blocks.blocker_id": "block blocker_id", "blocks.blocked_id": "block blocked_id",
	"conversations.admin_id": "conversation admin_id", "memberships.agent_id": "membership agent_id",
	"messages.sender_id": "message sender_id",
	"notices.agent_id":   "notice agent_id", "notices.actor_id": "notice actor_id", "payments.agent_id": "payment agent_id",
	"private_pairs.low_agent": "private_chat low_agent", "private_pairs.high_agent": "private_chat high_agent",
	"reactions.agent_id":          "reaction agent_id",
	"reserved_usernames.agent_id": "former_username agent_id", "suspensions.agent_id": "suspension agent_id",
}

// TestExportHasEverything: an export has each row that refers to the agent, of each table, and no secret.
func TestExportHasEverything(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	o := f.operator()
	agent := o.id(f.agent.ID)
	f.peer.groupMust("edit", f.group, "ban_agent_ids", []string{f.agent.ID})
	o.must(o.on.RenameAgent(t.Context(), o.by, agent, "zorblax2"))
	o.suspend(f.agent, "a message")
	f.Exec(`INSERT INTO refunds (payer, payment_id, amount, transaction, created_at) SELECT payer, id, 1, transaction, now() FROM payments
		WHERE agent_id = $1 LIMIT 1`, agent)
	found, kinds, account := map[string]int{}, map[string]int{}, map[string]any{}
	var all strings.Builder
	o.must(o.on.ExportAgent(t.Context(), agent, func(record store.ExportedRecord) error {
		kinds[record.Kind]++
		all.Write(record.Data)
		var row map[string]any
		if err := json.Unmarshal(record.Data, &row); err != nil {
			return err
		}
		if record.Kind == "account" {
			account = row
		}
		for member, value := range row {
			if value == agent.String() {
				found[record.Kind+" "+member]++
			}
		}
		return nil
	}))
	f.EachRow(func(rows pgx.Rows) error {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return err
		}
		want := f.Count("SELECT count(*) FROM "+table+" WHERE "+column+" = $1", agent)
		if place := exported[table+"."+column]; place == "" {
			t.Errorf("%s.%s refers to agents, and the export does not have it", table, column)
		} else if found[place] != want {
			t.Errorf("the export has %d × %s, want %d", found[place], place, want)
		}
		return nil
	}, `SELECT kcu.table_name, kcu.column_name FROM information_schema.table_constraints tc
		JOIN information_schema.key_column_usage kcu USING (constraint_schema, constraint_name)
		JOIN information_schema.constraint_column_usage ccu USING (constraint_schema, constraint_name)
		WHERE tc.constraint_type = 'FOREIGN KEY' AND ccu.table_name = 'agents'`)
	f.EachRow(func(rows pgx.Rows) error {
		var column string
		if err := rows.Scan(&column); err != nil {
			return err
		}
		if _, ok := account[column]; !ok {
			t.Errorf("agents.%s is neither in the export nor a secret", column)
		}
		return nil
	}, `SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'agents'
		AND column_name NOT IN ('key_hash', 'previous_key_hash', 'key_payment')`)
	for _, kind := range []string{"account", "refund", "payment_channel"} {
		if kinds[kind] != 1 {
			t.Errorf("the export has %d records of kind %s, want one", kinds[kind], kind)
		}
	}
	if !strings.Contains(all.String(), `"reply_to":"`) {
		t.Error("the export does not say which message an answer answers")
	}
	for _, secret := range f.secrets[:2] {
		if strings.Contains(all.String(), secret) {
			t.Error("the export has the hash of a key")
		}
	}
}
