package store_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// inconsistencies are queries that count what no server would write.
var inconsistencies = map[string]string{
	"conversations with gaps in their numbers": `SELECT count(*) FROM conversations c LEFT JOIN
		(SELECT conversation_id, count(*) AS n, min(number) AS low, max(number) AS high FROM messages GROUP BY 1) m ON m.conversation_id = c.id
		WHERE (c.last_number, c.last_number) <> (coalesce(m.n, 0), coalesce(m.high, 0)) OR m.low <> 1`,
	"conversations with a wrong member_count": `SELECT count(*) FROM conversations c
		WHERE c.member_count <> (SELECT count(*) FROM memberships m WHERE m.conversation_id = c.id AND m.status = 'member')`,
	"conversations with a wrong last_message_at": `SELECT count(*) FROM conversations c
		WHERE c.last_message_at IS DISTINCT FROM (SELECT max(created_at) FROM messages m WHERE m.conversation_id = c.id)`,
	"messages that are older than the one before": `SELECT count(*) FROM messages m JOIN messages o ON o.conversation_id = m.conversation_id AND o.number = m.number - 1
		WHERE m.created_at < o.created_at`,
	"things in the future": `SELECT (SELECT count(*) FROM messages WHERE created_at > now()) + (SELECT count(*) FROM memberships WHERE joined_at > now())`,
	"senders that are neither members nor the channel's admin": `SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id
		WHERE CASE c.kind WHEN 'channel' THEN m.sender_id <> c.admin_id
			ELSE NOT EXISTS (SELECT FROM memberships s WHERE s.conversation_id = c.id AND s.agent_id = m.sender_id) END`,
	"groups whose admin is no member": `SELECT count(*) FROM conversations c
		WHERE c.kind = 'group' AND NOT EXISTS (SELECT FROM memberships s WHERE s.conversation_id = c.id AND s.agent_id = c.admin_id)`,
	"private chats that are not their pair's": `SELECT count(*) FROM conversations c LEFT JOIN private_pairs p ON p.conversation_id = c.id
		WHERE c.kind = 'private' AND (SELECT array_agg(agent_id ORDER BY agent_id) FROM memberships m WHERE m.conversation_id = c.id) IS DISTINCT FROM ARRAY[p.low_agent, p.high_agent]`,
	"memberships with a marker out of range": `SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id
		WHERE NOT (m.joined_number <= m.read_number AND m.read_number <= c.last_number)`,
	"memberships with a wrong unread_own": `SELECT count(*) FROM memberships m WHERE unread_own <> (
		SELECT count(*) FROM messages o WHERE o.conversation_id = m.conversation_id AND o.sender_id = m.agent_id AND o.number > m.read_number)`,
	"ids that are no UUIDv7": `SELECT count(*) FROM (SELECT id FROM agents UNION ALL SELECT id FROM conversations UNION ALL SELECT id FROM messages) ids
		WHERE id::text !~ '^.{8}-.{4}-7.{3}-[89ab]'`,
}

func TestSeed(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, connection := openBeside(t)
	ask := func(query string) (response string) {
		t.Helper()
		if err := connection.QueryRow(ctx, query).Scan(&response); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return response
	}
	const indexes = `SELECT string_agg(indexdef, E'\n' ORDER BY indexdef) FROM pg_indexes WHERE schemaname = 'public'`
	before := ask(indexes)

	var steps []string
	made, err := s.Seed(ctx, store.Seeding{Agents: 40, Conversations: 300, Messages: 5000, Subscribers: 39}, func(step string) { steps = append(steps, step) })
	if err != nil {
		t.Fatal(err)
	}
	want := &store.Seeded{Agents: 40, PrivateChats: 210, Groups: 90, Channels: 1, Memberships: made.Memberships, Messages: 5000}
	if diff := cmp.Diff(want, made); diff != "" || made.Memberships < 2*210+3*90+39 || len(steps) == 0 {
		t.Errorf("seeded in the steps %v (-want +got):\n%s", steps, diff)
	}
	if diff := cmp.Diff(before, ask(indexes)); diff != "" {
		t.Errorf("seeding changed the indexes (-before +after):\n%s", diff)
	}
	for name, query := range inconsistencies {
		if n := ask(`SELECT CAST((` + query + `) AS text)`); n != "0" {
			t.Errorf("there are %s %s", n, name)
		}
	}
	if n := ask(`SELECT CAST(count(DISTINCT content) > 3000 AND count(DISTINCT sender_id) > 30 AS text) FROM messages`); n != "true" {
		t.Error("the messages are not varied: too few texts or senders")
	}

	// A server continues from the seeded data.
	low, err := uuid.Parse(ask(`SELECT CAST(low_agent AS text) FROM private_pairs LIMIT 1`))
	if err != nil {
		t.Fatal(err)
	}
	high, err := uuid.Parse(ask(`SELECT CAST(high_agent AS text) FROM private_pairs WHERE low_agent = '` + low.String() + `' LIMIT 1`))
	if err != nil {
		t.Fatal(err)
	}
	last := ask(`SELECT CAST(last_number + 1 AS text) FROM conversations c JOIN private_pairs p ON p.conversation_id = c.id WHERE low_agent = '` + low.String() + `' AND high_agent = '` + high.String() + `'`)
	if _, err := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) {
		return tx.SendMessage(ctx, private(low, high, "and on it goes"))
	}); err != nil {
		t.Fatal(err)
	}
	if got := ask(`SELECT CAST(max(number) AS text) FROM messages WHERE content = 'and on it goes'`); got != last {
		t.Errorf("the next message has number %s, want %s", got, last)
	}

	_, err = s.Seed(ctx, store.Seeding{Agents: 3}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), "already has agents") {
		t.Errorf("seeding a database that has agents: %v, want a refusal", err)
	}
}

func TestSeedRejectsImpossibleSizes(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for name, size := range map[string]store.Seeding{
		"two agents":                     {Agents: 2},
		"more chats than pairs":          {Agents: 4, Conversations: 5},
		"negative messages":              {Agents: 3, Messages: -1},
		"more subscribers than agents":   {Agents: 3, Subscribers: 4},
		"a negative number of everybody": {Agents: -1, Conversations: -1, Messages: -1, Subscribers: -1},
	} {
		if _, err := s.Seed(t.Context(), size, func(string) {}); err == nil {
			t.Errorf("%s can be seeded", name)
		}
	}
	made, err := s.Seed(t.Context(), store.Seeding{Agents: 3}, func(string) {})
	if diff := cmp.Diff(&store.Seeded{Agents: 3, Channels: 1}, made); err != nil || diff != "" {
		t.Errorf("three agents and an empty channel: %v (-want +got):\n%s", err, diff)
	}
}
