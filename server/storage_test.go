package server_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

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

// worstCall is a call that stores as much as it can.
type worstCall struct {
	path string
	body func() fields // a different one each time
}

// worstCalls are the calls that store most. Calls that are not listed store their payment and at most a row of a few hundred bytes.
func worstCalls(group, channel, message string, crowd []string) []worstCall {
	text := func() string { return hardToIndex(16_384) }
	note := func() string { return hardToIndex(1024) }
	name := func() string { return hardToIndex(64) }
	return []worstCall{
		{"/chat/group/messages", func() fields { return fields{"chat_id": group, "n": 1} }},
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
	}
}

// TestStorageIsPaidFor: what a call stores is bounded by its price, as the table of docs/security.md says.
func TestStorageIsPaidFor(t *testing.T) {
	t.Parallel()
	documented := storageTable(t)
	w := newWorld(t)
	alice := w.agent("alice")
	w.Exec(`INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT gen_random_uuid(), 'extra_' || n, '', true, sha256(CAST('extra ' || n AS bytea)), now() FROM generate_series(1, 100) AS n`)
	group, channel := alice.createGroup("Planners"), alice.channel("News")
	message := alice.sendGroup(group, "short")
	alice.sendGroup(group, hardToIndex(15_500)) // a page of nearly 64 KiB
	for _, call := range worstCalls(group, channel, message, alice.finds("extra", 100)) {
		price := w.amount(call.path)
		const calls = 8
		rows, index := int64(0), int64(0) // the largest, and the mean: an index grows in steps
		for range calls {
			rowsBefore, indexBefore := w.stored()
			alice.ask(call.path, call.body()).Require(t, call.path, http.StatusOK)
			rowsAfter, indexAfter := w.stored()
			rows, index = max(rows, rowsAfter-rowsBefore), index+(indexAfter-indexBefore)/calls
		}
		perUSD := float64(rows+index) / float64(price)
		t.Logf("| `%s` | %s | %.1f | %.0f | %.2f |", call.path, x402.FormatUSD(uint64(price)), float64(rows)/1000, float64(index)/1000, perUSD)
		if row := documented[call.path]; row.usd != float64(price)/1e6 || perUSD > 1.3*row.perUSD {
			t.Errorf("%s costs %s USD and stores %.2f MB for each USD; docs/security.md says %+v", call.path, x402.FormatUSD(uint64(price)),
				perUSD, row)
		}
	}
}

type storageRow struct{ usd, perUSD float64 }

// storageTable reads the table of docs/security.md, by path.
func storageTable(t *testing.T) map[string]storageRow {
	t.Helper()
	text, err := os.ReadFile("../docs/security.md")
	testkit.NoError(t, err)
	rows := map[string]storageRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.Contains(cells[1], "`/") {
			continue
		}
		var row storageRow
		_, err := fmt.Sscan(cells[2]+" "+cells[5], &row.usd, &row.perUSD)
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

// amount is the price of posting to a path, in millionths of a dollar.
func (w *world) amount(path string) int64 {
	w.T.Helper()
	amount, err := strconv.ParseInt(w.price(path).Accepts[0].Amount, 10, 64)
	if err != nil {
		w.T.Fatal(err)
	}
	return amount
}
