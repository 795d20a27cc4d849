package service

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// hardToIndex returns a text of n characters of four bytes, in which nearly every three characters in a row are new to the search index.
func hardToIndex(n int) string {
	text := make([]rune, n)
	for i := range text {
		text[i] = rune(0x20000 + rand.IntN(0xa6d0)) // letters: Chinese characters
	}
	return string(text)
}

// stored is how many bytes are in the rows of the database, as they are without compression, and in the index for searches.
func (w *world) stored() (rows, index int64) {
	w.T.Helper()
	var sums []string
	for _, table := range []string{"agents", "registrations", "blocks", "conversations", "private_pairs", "memberships", "messages",
		"reactions",
		"notices", "payments", "payment_channels"} {
		sums = append(sums, "(SELECT coalesce(sum(pg_column_size(t)), 0) FROM "+table+" t)")
	}
	w.Scan(`SELECT gin_clean_pending_list('messages_search')`, nil, new(int64))
	w.Scan("SELECT CAST("+strings.Join(sums, " + ")+" AS bigint), pg_relation_size('messages_search')", nil, &rows, &index)
	return rows, index
}

// worstCall is a call that costs the server as much as it can.
type worstCall struct {
	path string
	body func() fields // a different one each time; nil for GET
}

// worstCalls are the calls that cost most. Calls that are not listed store their payment and at most a row of a few hundred bytes, and
// return a few kilobytes.
func (w *world) worstCalls(alice *agent) []worstCall {
	w.T.Helper()
	w.Exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'extra_' || n, repeat('𝕏', 1024), true, sha256(CAST('extra ' || n AS bytea)), now()
		FROM generate_series(1, 998) AS n`)
	group, channel, crowded := alice.createGroup("Planners"), alice.channel("News"), alice.createGroup("Crowd")
	message, crowd := alice.sendGroup(group, "short"), alice.finds("extra", 100)
	for range 16 {
		alice.sendGroup(crowded, hardToIndex(16_384))
	}
	w.Exec(`INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, a.id, 'member', 16, 16, now() FROM conversations c, agents a WHERE c.name = 'Crowd' AND a.username LIKE 'extra%'`)
	w.Exec(`UPDATE conversations SET member_count = 999 WHERE name = 'Crowd'`)
	w.Exec("ANALYZE")
	text := func() string { return hardToIndex(16_384) }
	note := func() string { return hardToIndex(1024) }
	name := func() string { return hardToIndex(64) }
	return []worstCall{
		{"/chat/group/send", func() fields { return fields{"chat_id": group, "content": text()} }},
		{"/channel/send", func() fields { return fields{"channel_id": channel, "content": text()} }},
		{"/chat/group/edit", func() fields {
			return fields{"chat_id": group, "name": name(), "description": note(), "add_member_ids": crowd}
		}},
		{"/channel/edit", func() fields {
			return fields{"channel_id": channel, "name": name(), "description": note(), "ban_agent_ids": crowd}
		}},
		{"/chat/group/create", func() fields {
			return fields{"name": name(), "description": note(), "initial_member_ids": crowd}
		}},
		{"/channel/create", func() fields { return fields{"name": name(), "description": note()} }},
		{"/agent/edit", func() fields { return fields{"description": note()} }},
		{"/message/react", func() fields { return fields{"message_id": message, "emoji": "🏴󠁧󠁢󠁥󠁮󠁧󠁿"} }},
		{"/register/request_account", func() fields { return fields{"requested_username": "u" + strconv.Itoa(rand.Int())} }},
		{"/chat/group/messages", func() fields { return fields{"chat_id": crowded, "n": 250} }},
		{"/chat/group/search", func() fields { return fields{"chat_id": crowded, "query": `[𠀀-𪛖]{5}`} }},
		{"/chat/group/info", func() fields { return fields{"chat_id": crowded} }},
		{"/search/agents", func() fields { return fields{"query": "extra", "page_size": 100} }},
		{unreadPath, nil},
	}
}

// ask makes the call.
func (c worstCall) ask(by *agent) testkit.Reply {
	if c.body != nil {
		return by.ask(c.path, c.body())
	}
	return by.w.call(http.MethodGet, c.path, "", "X-API-KEY", by.Key, x402.HeaderPaymentSignature,
		by.w.signFor(by.Wallet, http.MethodGet, c.path))
}

// TestCallsAreWorthTheirPrice: what a call stores and returns is bounded by its price, as the table of docs/security.md says.
func TestCallsAreWorthTheirPrice(t *testing.T) {
	t.Parallel()
	documented := costTable(t)
	w := newWorld(t)
	alice := w.agent("alice")
	for _, call := range w.worstCalls(alice) {
		calls := 2
		if strings.HasSuffix(call.path, "/send") {
			calls = 8 // the index grows in steps
		}
		rows, index, response := int64(0), int64(0), 0 // the largest, and the mean of the index
		for range calls {
			rowsBefore, indexBefore := w.stored()
			reply := call.ask(alice)
			reply.Require(t, call.path, http.StatusOK)
			rowsAfter, indexAfter := w.stored()
			rows, index = max(rows, rowsAfter-rowsBefore), index+(indexAfter-indexBefore)/int64(calls)
			response = max(response, len(reply.Body))
		}
		price := w.amount(call.path)
		perUSD := float64(rows+index) / float64(price)
		t.Logf("| `%s` | %s | %.1f | %.0f | %.2f | %.1f |", call.path, x402.FormatUSD(uint64(price)), float64(rows)/1000, float64(index)/1000,
			perUSD, float64(response)/1000)
		row := documented[call.path]
		if row.usd != float64(price)/1e6 || perUSD > 1.3*row.stored || float64(response) > 1300*row.response {
			t.Errorf("%s costs %s USD, stores %.2f MB for each USD, and returns %.1f kB; docs/security.md says %+v", call.path,
				x402.FormatUSD(uint64(price)), perUSD, float64(response)/1000, row)
		}
	}
}

// TestDatabaseTimeOfCalls measures the last column of the table.
func TestDatabaseTimeOfCalls(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	alice := w.agent("alice")
	spent := func() (ms float64) {
		time.Sleep(11 * time.Second) // an idle connection is counted after ten seconds
		w.Scan("SELECT active_time FROM pg_stat_database WHERE datname = current_database()", nil, &ms)
		return ms
	}
	worst := w.worstCalls(alice)
	before := spent()
	for _, call := range worst {
		const calls = 20
		for range calls {
			call.ask(alice).Require(t, call.path, http.StatusOK)
		}
		after := spent()
		t.Logf("| `%s` | %.1f ms |", call.path, (after-before)/calls)
		before = after
	}
}

type costRow struct{ usd, stored, response float64 }

// costTable reads the table of docs/security.md, by path.
func costTable(t *testing.T) map[string]costRow {
	t.Helper()
	text, err := os.ReadFile("../../docs/security.md")
	testkit.NoError(t, err)
	rows := map[string]costRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 || !strings.Contains(cells[1], "`/") {
			continue
		}
		var row costRow
		_, err := fmt.Sscan(cells[2]+" "+cells[5]+" "+cells[6], &row.usd, &row.stored, &row.response)
		testkit.NoError(t, err)
		for i, path := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				rows[path] = row
			}
		}
	}
	return rows
}

// finds returns the ids of the first n agents whose names have the text.
func (a *agent) finds(text string, n int64) (ids []string) {
	a.w.T.Helper()
	found, err := a.SearchAgentsWithResponse(a.w.T.Context(), client.SearchAgentsRequest{Query: text, PageSize: &n})
	testkit.Require200(a.w.T, a.Name+" searches", found, err)
	for _, one := range found.JSON200.Agents {
		ids = append(ids, one.AgentID)
	}
	return ids
}

// amount is the price of an operation, in millionths of a dollar.
func (w *world) amount(path string) int64 {
	for name, route := range testkit.Operations {
		if route.Path == path {
			return int64(testkit.Price(name)) //nolint:gosec // a price
		}
	}
	return 0
}
