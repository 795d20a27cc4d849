package store_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// Texts of the greatest length: of most bytes, and of most bytes as JSON.
const (
	mostBytes = `repeat('🦜', 16384)`
	mostJSON  = `repeat(E'\x01', 16384)`
)

// weigh checks that content fits on a page.
func weigh(t *testing.T, messages []store.SentMessage) {
	t.Helper()
	bytes, escaped := 0, 0
	for _, message := range messages {
		bytes += len(message.Content)
		raw, err := json.Marshal(message.Content)
		testkit.NoError(t, err)
		escaped += len(raw)
	}
	if bytes > 1<<20 || escaped > 2<<20+2*len(messages) {
		t.Errorf("a page has %d bytes of content, %d as JSON, want at most 1 MiB, 2 MiB", bytes, escaped)
	}
}

// down counts from one number to another.
func down(from, to int64) (all []int64) {
	for number := from; number >= to; number-- {
		all = append(all, number)
	}
	return all
}

func numbersOf(messages []store.SentMessage) (all []int64) {
	for _, message := range messages {
		all = append(all, message.Number)
	}
	return all
}

// TestMessagePagesAreCut: a page has at most 1 MiB of content, says where it was cut short, and goes on from there
// without a gap; page numbers name the same messages as ever.
func TestMessagePagesAreCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for _, test := range []struct {
		name, content string
		n, page       int64
		want          []int64
		cut           bool
	}{
		{"of most bytes", mostBytes, 250, 1, down(60, 45), true},
		{"the second page after one that was cut", mostBytes, 30, 2, down(30, 15), true},
		{"the last page", mostBytes, 50, 2, down(10, 1), false},
		{"sixteen", mostBytes, 16, 2, down(44, 29), false},
		{"beyond the end", mostBytes, 30, 3, nil, false},
		{"of most JSON", mostJSON, 250, 1, down(60, 40), true},
		{"sixteen of most JSON", mostJSON, 16, 1, down(60, 45), false},
		{"short ones", `'short ' || i`, 60, 1, down(60, 1), false},
		{"one long one after short ones", `CASE WHEN i > 40 THEN 'short' ELSE ` + mostBytes + ` END`, 60, 1, down(60, 26), true},
	} {
		chat := r.chat(60, test.content)
		page, err := r.Messages(t.Context(), chat, test.n, test.page, nil, store.LongPage)
		testkit.NoError(t, err)
		weigh(t, page.Messages)
		if got := numbersOf(page.Messages); !slices.Equal(got, test.want) || (page.Next != nil) != test.cut {
			t.Errorf("%s: %v, cut short: %v; want %v, %v", test.name, got, page.Next != nil, test.want, test.cut)
		}
		var all []int64
		for next := new(uuid.UUID); next != nil; {
			if *next == uuid.Nil {
				next = nil
			}
			page, err := r.Messages(t.Context(), chat, 60, 1, next, store.LongPage)
			testkit.NoError(t, err)
			all, next = append(all, numbersOf(page.Messages)...), page.Next
		}
		if !slices.Equal(all, down(60, 1)) {
			t.Errorf("%s: who goes on from page to page sees %v, want 60 to 1", test.name, all)
		}
	}
}

// TestMatchesAreCut: so it is with the pages of a search, whether the index names the messages or not.
func TestMatchesAreCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	for _, content := range []string{
		`CASE WHEN i % 2 = 0 THEN 'needle ' || repeat('🦜', 16377) ELSE 'hay' END`,
		`CASE WHEN i % 2 = 0 THEN 'needle ' || repeat(E'\x01', 16377) ELSE 'hay' END`,
		`CASE WHEN i % 2 = 0 THEN 'needle' ELSE ` + mostBytes + ` END`,
	} {
		chat := r.chat(200, content)
		for _, query := range []string{"needle", "ne{2}[d]le|[x]{9}"} {
			var all []int64
			pages := 0
			for next := new(uuid.UUID); next != nil; pages++ {
				if *next == uuid.Nil {
					next = nil
				}
				matches, err := r.SearchMessages(t.Context(), chat, query, 50, 1, next)
				testkit.NoError(t, err)
				weigh(t, matches.Messages)
				all = append(all, numbers(matches)...)
				if next = matches.SearchedTo; next == nil && len(matches.Messages) == 50 {
					next = &matches.Messages[49].ID
				}
			}
			var want []int64
			for number := int64(200); number > 0; number -= 2 {
				want = append(want, number)
			}
			if !slices.Equal(all, want) || pages < 3 {
				t.Errorf("%s in %s: %d pages with %v, want all even numbers", query, content, pages, all)
			}
		}
		// The bound of work can end the search before the second page begins.
		if second, err := r.SearchMessages(t.Context(), chat, "needle", 50, 2, nil); err != nil || second.SearchedTo == nil &&
			(len(second.Messages) == 0 || second.Messages[0].Number != 100) {
			t.Errorf("page 2 in %s begins with %v (%v), want 100", content, numbers(second), err)
		}
	}
}

// TestUnreadPagesAreCut: what did not fit on a page stays unread, so the next page 1 goes on; without marking, pages of
// sixteen show everything.
func TestUnreadPagesAreCut(t *testing.T) {
	t.Parallel()
	r := newRig(t, storetest.URL(t))
	one, two := r.chat(40, mostBytes), r.chat(30, mostJSON)
	var reader uuid.UUID // of both chats
	err := r.connection.QueryRow(t.Context(), `SELECT agent_id FROM memberships WHERE conversation_id = $1
		AND agent_id NOT IN (SELECT sender_id FROM messages)`, one.ID).Scan(&reader)
	testkit.NoError(t, err)
	r.exec(`UPDATE memberships SET agent_id = $1 WHERE conversation_id = $2 AND agent_id NOT IN (SELECT sender_id FROM messages)`, reader,
		two.ID)
	r.exec(`UPDATE messages SET created_at = timestamptz '2025-01-01' + make_interval(secs => number)`)
	sent := func(messages []store.UnreadMessage) (all []store.SentMessage) {
		for _, message := range messages {
			all = append(all, message.SentMessage)
		}
		return all
	}
	var whole []uuid.UUID
	for page := int64(1); page <= 5; page++ {
		unread, err := r.Unread(t.Context(), reader, longPage(page, 16))
		if err != nil || unread.Total != 70 || unread.CutShort {
			t.Fatalf("page %d of 16: %d of %d, cut short: %v (%v)", page, len(unread.Messages), unread.Total, unread.CutShort, err)
		}
		whole = append(whole, idsOf(unread.Messages)...)
	}
	second, err := r.Unread(t.Context(), reader, longPage(2, 35))
	if err != nil || !second.CutShort || second.Messages[0].ID != whole[35] {
		t.Errorf("page 2 of 35 has %d messages (%v), want it cut short and to begin with the 36th", len(second.Messages), err)
	}
	var read []uuid.UUID
	for total := int64(70); total > 0; total = 70 - int64(len(read)) {
		var unread *store.Unread
		err := r.Transaction(t.Context(), func(tx *store.Tx) (err error) {
			unread, err = tx.ReadUnread(t.Context(), reader, longPage(1, 250))
			return err
		})
		if err != nil || unread.Total != total || len(unread.Messages) == 0 {
			t.Fatalf("reading: %d of %d (%v), want some of %d", len(unread.Messages), unread.Total, err, total)
		}
		weigh(t, sent(unread.Messages))
		read = append(read, idsOf(unread.Messages)...)
		if unread.CutShort != (len(read) < 70) {
			t.Errorf("after %d messages the page is cut short: %v", len(read), unread.CutShort)
		}
	}
	if len(whole) != 70 || !slices.Equal(read, whole) {
		t.Errorf("%d messages were read, and pages of sixteen show %d, want the same 70", len(read), len(whole))
	}
}
