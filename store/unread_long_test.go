package store_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// crowdedReader is an agent with 60 unread messages in each of 300 channels. Their times are seconds, an expression of the channel c and
// the number n of the message.
func (r *rig) crowdedReader(name, seconds string) uuid.UUID {
	r.t.Helper()
	reader, admin := r.agent("reader_of_"+name, "", 0), r.agent("admin_of_"+name, "", 0)
	r.exec(`
		WITH channel AS (
			INSERT INTO conversations (id, kind, name, admin_id, member_count, created_at, last_number, last_message_at)
			SELECT gen_random_uuid(), 'channel', CAST(c AS text), $2, 1, now(), 60, now() FROM generate_series(1, 300) AS c RETURNING id, name
		), subscription AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT id, $1, 'member', 0, 0, now() FROM channel
		)
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT id, n, gen_random_uuid(), $2, 'x', timestamptz '2025-01-01' + make_interval(secs => `+seconds+`)
		FROM channel CROSS JOIN LATERAL (SELECT CAST(name AS int) AS c) c CROSS JOIN generate_series(1, 60) AS n`, reader, admin)
	r.exec(`VACUUM ANALYZE messages, conversations, memberships`)
	return reader
}

// TestUnreadAmongMany: in whatever order many messages in many channels were sent, each page has those that it should have, and reads about
// as many messages as it has to, not the first of every channel.
func TestUnreadAmongMany(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for name, seconds := range map[string]string{
		"turns": "n * 1000 + c", "blocks": "c * 1000 + n", "different_rates": "n * (c % 7 + 1) * 50 + c", "one_moment": "n / 60",
	} {
		reader := r.crowdedReader(name, seconds)
		rows, err := r.connection.Query(t.Context(), `SELECT o.id FROM messages o JOIN memberships m USING (conversation_id)
			WHERE m.agent_id = $1 ORDER BY o.created_at, o.conversation_id, o.number`, reader)
		testkit.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		testkit.NoError(t, err)
		for _, page := range []struct{ number, size int64 }{{1, 50}, {1, 250}, {5, 250}, {72, 250}, {73, 250}} {
			last := page.number * page.size
			want := all[min((page.number-1)*page.size, 18_000):min(last, 18_000)]
			unread, err := r.Unread(t.Context(), reader, longPage(page.number, page.size))
			testkit.NoError(t, err)
			if !slices.Equal(idsOf(unread.Messages), want) || unread.Total != 18_000 {
				t.Errorf("%s: page %d of %d has other messages than it should have, or a total of %d", name, page.number, page.size, unread.Total)
			}
			short := shortPage(page.number, page.size)
			if _, err := r.Unread(t.Context(), reader, short); !errors.Is(err, store.ErrLongPage) || r.messagesRead(reader, short) > 0 {
				t.Errorf("%s: page %d of %d as a short page: %v after %d messages, want it to be too long from counters alone", name, page.number,
					page.size, err, r.messagesRead(reader, short))
			}
			most := 300 + 8*last + last*last/16 + page.size
			if read := r.messagesRead(reader, longPage(page.number, page.size)); read > most {
				t.Errorf("%s: page %d of %d reads %d messages, want at most %d", name, page.number, page.size, read, most)
			}
		}
	}
}

// messagesRead counts the rows of messages that a page of unread messages reads.
func (r *rig) messagesRead(reader uuid.UUID, page store.UnreadPage) (read int64) {
	r.t.Helper()
	type node struct {
		Relation string  `json:"Relation Name"`
		Rows     float64 `json:"Actual Rows"`
		Removed  float64 `json:"Rows Removed by Filter"`
		Loops    float64 `json:"Actual Loops"`
		Plans    []node
	}
	var plans []struct{ Plan node }
	text, err := r.ExplainUnread(r.t.Context(), reader, page)
	if err == nil {
		err = json.Unmarshal([]byte(text), &plans)
	}
	testkit.NoError(r.t, err)
	for nodes := []node{plans[0].Plan}; len(nodes) > 0; nodes = append(nodes[1:], nodes[0].Plans...) {
		if nodes[0].Relation == "messages" {
			read += int64((nodes[0].Rows + nodes[0].Removed) * nodes[0].Loops)
		}
	}
	return read
}

// readBatches returns how many batches of reads there were.
func (r *rig) readBatches() (batches uint64) {
	r.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.Collectors()...)
	families, err := registry.Gather()
	testkit.NoError(r.t, err)
	for _, metric := range families[0].GetMetric() {
		if metric.GetLabel()[0].GetValue() == "reads" {
			batches = metric.GetHistogram().GetSampleCount()
		}
	}
	return batches
}

// TestLongReadsLeaveTheBatch: what reads much for one agent shares no round trip with the reads of others, and what reads little does.
func TestLongReadsLeaveTheBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	reader := r.crowdedReader("all", "n")
	ctx := t.Context()
	chat := r.chat(40, "'x'")
	crowd := &store.ConversationView{Conversation: store.Conversation{ID: chat.ID, MemberCount: 201}}
	page, err := r.Messages(ctx, chat, 40, 1, nil, store.ShortPage)
	testkit.NoError(t, err)
	r.crowd(50, "''")
	react := func(fans, messages int) {
		r.exec(`INSERT INTO reactions (conversation_id, number, agent_id, emoji, created_at) SELECT $1, n, id, '👍', now()
			FROM (SELECT id FROM agents WHERE username LIKE 'crowd%' LIMIT $2) a, generate_series(1, $3) AS n ON CONFLICT DO NOTHING`,
			chat.ID, fans, messages)
	}
	for i := range page.Messages {
		page.Messages[i].Unreacted = false
	}
	reactions := func(most int64) func() error {
		return func() error {
			_, _, err := r.PageReactions(ctx, page.Messages, most)
			return err
		}
	}
	for _, test := range []struct {
		name    string
		read    func() error
		batches uint64
		long    bool // it must be asked for as a long page
	}{
		{"two members", func() error { _, err := r.Members(ctx, chat, reader, store.ShortPage); return err }, 1, false},
		{"many members", func() error { _, err := r.Members(ctx, crowd, reader, store.ShortPage); return err }, 0, true},
		{"many members as a long page", func() error { _, err := r.Members(ctx, crowd, reader, store.LongPage); return err }, 0, false},
		{"an account with many channels", func() error { _, err := r.OwnAccount(ctx, reader); return err }, 1, false}, // learns it
		{"a few of many unread messages", func() error { _, err := r.Unread(ctx, reader, shortPage(1, 1)); return err }, 1, false},
		{"many unread messages", func() error { _, err := r.Unread(ctx, reader, shortPage(1, 50)); return err }, 1, true},
		{"many unread messages as a long page", func() error { _, err := r.Unread(ctx, reader, longPage(1, 50)); return err }, 0, false},
		{"a short page of a chat", func() error { _, err := r.Messages(ctx, chat, 50, 1, nil, store.ShortPage); return err }, 1, false},
		{"a long page of a chat", func() error { _, err := r.Messages(ctx, chat, 50, 1, nil, store.LongPage); return err }, 0, false},
		{"few reactions", func() error { react(20, 40); return reactions(store.ShortPage)() }, 1, false},
		{"many reactions", func() error { react(30, 40); return reactions(store.ShortPage)() }, 1, true},
		{"many reactions of a long page", reactions(store.LongPage), 1, false}, // learns that they are many
	} {
		before := r.readBatches()
		if err := test.read(); err != nil && !errors.Is(err, store.ErrLongPage) || errors.Is(err, store.ErrLongPage) != test.long {
			t.Errorf("%s: %v, want ErrLongPage: %v", test.name, err, test.long)
		}
		if batches := r.readBatches() - before; batches != test.batches {
			t.Errorf("%s: %d shared round trips, want %d", test.name, batches, test.batches)
		}
	}
	if account, err := r.OwnAccount(ctx, reader); err != nil || len(account.Subscribed) != 300 {
		t.Errorf("the account has %d channels (%v), want 300", len(account.Subscribed), err)
	}
}
