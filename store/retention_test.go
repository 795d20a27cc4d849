package store_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// newRetentionModel returns a ground, and a model of its memberships.
func newRetentionModel(t *testing.T) *retentionModel {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	m := &retentionModel{ground: newGround(t), random: rand.New(rand.NewPCG(seed, 0)), markers: map[[2]uuid.UUID]int64{}}
	for _, conversation := range m.conversations {
		members := m.members[conversation]
		if len(members) == 1 { // the channel, to which the others subscribe
			members = m.agents[1:]
		}
		for _, member := range members {
			m.markers[[2]uuid.UUID{member, conversation}] = 0
		}
	}
	return m
}

// TestRetentionKeepsNumbers does random things and removes old messages meanwhile. After each, totals, pages, searches, pins, unread
// messages and read markers are those of the messages that are left.
func TestRetentionKeepsNumbers(t *testing.T) {
	t.Parallel()
	m := newRetentionModel(t)
	for range 300 {
		what, err := m.act()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Log(what)
		m.checkCounters(what)
		m.check(m.pick(m.agents), m.pick(m.conversations))
	}
	if len(m.removed) == 0 {
		t.Error("no message was removed")
	}
}

// number is the one number that a query returns.
func (g *ground) number(query string, arguments ...any) (n int64) {
	g.t.Helper()
	g.query(func(c *pgx.Conn) error { return c.QueryRow(g.t.Context(), query, arguments...).Scan(&n) })
	return n
}

// exec executes statements.
func (g *ground) exec(statement string, arguments ...any) {
	g.t.Helper()
	g.query(func(c *pgx.Conn) error { _, err := c.Exec(g.t.Context(), statement, arguments...); return err })
}

// TestRetentionErasesDeletedConversations: of a group chat that was deleted long ago only its number of messages stays. Other
// conversations stay whole.
func TestRetentionErasesDeletedConversations(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	const messages, members = 700, 600 // several batches
	for range messages {
		if _, err := g.SendAnywhere(ctx, g.group, g.agents[1], uuid.Must(uuid.NewV7()), "text"); err != nil {
			t.Fatal(err)
		}
	}
	g.exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'extra_' || n, '', false, sha256(CAST('extra ' || n AS bytea)), now()
		FROM generate_series(1, $1) AS n`, members-len(g.agents))
	g.exec(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT $1, id, 'member', 0, 0, now() FROM agents ON CONFLICT DO NOTHING`, g.group)
	err := g.Transaction(ctx, func(tx *store.Tx) error {
		return errors.Join(tx.React(ctx, g.group, 300, g.agents[2], "👍"), tx.DeleteConversation(ctx, store.KindGroup, g.group, g.agents[0]))
	})
	testkit.NoError(t, err)
	before, err := g.Statistics(ctx)
	testkit.NoError(t, err)
	if report := g.sweep(store.Retention{Deleted: time.Hour}); report.Removed != (store.Removed{}) {
		t.Errorf("before its time, %+v was removed", report.Removed)
	}
	g.exec(`UPDATE conversations SET deleted_at = now() - interval '2 hours' WHERE id = $1`, g.group)
	want := store.Removed{Messages: messages, Reactions: 1, Memberships: members, Conversations: 1, Bytes: 4 * messages}
	counted, err := retention.Sweep(ctx, g.Store, store.Retention{Deleted: time.Hour}, true, nil)
	if diff := gocmp.Diff(want, counted.Removed); diff != "" || err != nil {
		t.Errorf("the dry run (%v) (-want +got):\n%s", err, diff)
	}
	if diff := gocmp.Diff(want, g.sweep(store.Retention{Deleted: time.Hour}).Removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	for _, table := range []string{"messages", "reactions", "memberships"} {
		if left := g.number("SELECT count(*) FROM "+table+" WHERE conversation_id = $1", g.group); left > 0 {
			t.Errorf("%d %s are left", left, table)
		}
	}
	if _, err := g.ConversationView(ctx, store.KindGroup, g.group, g.agents[0]); !errors.Is(err, store.ErrDeleted) {
		t.Errorf("the group chat: %v, want %v", err, store.ErrDeleted)
	}
	if after, err := g.Statistics(ctx); err != nil || *after != *before {
		t.Errorf("the statistics are %+v (%v), want %+v", after, err, before)
	}
	if again := g.sweep(store.Retention{Messages: 48 * time.Hour, Deleted: time.Hour}); again.Looked > 0 || again.Oldest.IsZero() {
		t.Errorf("the next sweep looks at %d conversations; the oldest message is of %v", again.Looked, again.Oldest)
	}
}

// TestSweepsTakeTurns: one sweep runs at a time on a database. It leaves out a conversation that stays locked.
func TestSweepsTakeTurns(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	all := store.Retention{Messages: time.Nanosecond}
	sweep, err := g.BeginSweep(ctx, all)
	testkit.NoError(t, err)
	if _, err := retention.Sweep(ctx, g.Store, all, false, nil); !errors.Is(err, store.ErrSweeping) {
		t.Errorf("a second sweep: %v, want %v", err, store.ErrSweeping)
	}
	sweep.End(ctx)
	begun := func() bool { sweep, err = g.BeginSweep(ctx, all); return err == nil }
	if !testkit.Eventually(10*time.Second, begun) { // PostgreSQL needs a moment to notice the end of a connection
		t.Fatalf("a sweep after the first: %v", err)
	}
	sweep.End(ctx)
	locked := g.conversations[0]
	g.exec(`BEGIN`)
	g.exec(`SELECT 1 FROM conversations WHERE id = $1 FOR UPDATE`, locked)
	var report retention.Report
	swept := func() bool { report, err = retention.Sweep(ctx, g.Store, all, false, nil); return err == nil }
	if !testkit.Eventually(10*time.Second, swept) || report.Busy != 1 {
		t.Errorf("%d conversations were left out (%v), want one", report.Busy, err)
	}
	g.exec(`ROLLBACK`)
	for _, conversation := range g.conversations {
		if left := len(g.messagesOf(conversation)); (left > 0) != (conversation == locked) {
			t.Errorf("%d messages are left in a conversation (locked: %v)", left, conversation == locked)
		}
	}
}
