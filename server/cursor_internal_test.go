package server

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestCursors: a cursor says what its page returned, to its agent only, and the largest one is within the contract's length.
func TestCursors(t *testing.T) {
	t.Parallel()
	document, err := parley.Document()
	testkit.NoError(t, err)
	schemas := document.Components.Schemas
	most, longest := int(*schemas["MessagePageSize"].Value.Max), int(*schemas["Cursor"].Value.MaxLength)
	agent := uuid.New()
	for _, size := range []int{1, 2, 50, most} {
		var through store.Through
		number := int64(1) << 50
		for range size {
			oldest := rand.Int64N(maxNumber-1) + 1
			through.Ranges = append(through.Ranges, store.ReadRange{Conversation: uuid.New(), Oldest: oldest, Newest: oldest + rand.Int64N(1<<50)})
		}
		for range min(size, 50) {
			number += rand.Int64N(1<<40) + 1
			through.Notices = append(through.Notices, number)
		}
		cursor := cursorOf(agent, through)
		if got, err := parseCursor(agent, cursor); err != nil || cmp.Diff(through, got) != "" {
			t.Errorf("a cursor of %d conversations: %v\n%s", size, err, cmp.Diff(through, got))
		}
		if len(cursor) > longest {
			t.Errorf("a cursor of %d conversations has %d characters, the contract allows %d", size, len(cursor), longest)
		}
		if _, err := parseCursor(uuid.New(), cursor); !errors.Is(err, store.ErrNotACursor) {
			t.Errorf("another agent's cursor: %v", err)
		}
		for range 100 {
			damaged := []byte(cursor)
			i := rand.IntN(len(damaged)-2) + 2
			damaged[i] = "AB"[rand.IntN(2)]
			if string(damaged) != cursor {
				if _, err := parseCursor(agent, string(damaged)); !errors.Is(err, store.ErrNotACursor) {
					t.Errorf("a cursor with another character %d: %v", i, err)
				}
			}
		}
	}
	if got, err := parseCursor(agent, cursorOf(uuid.New(), store.Through{})); err != nil || !got.Empty() {
		t.Errorf("the cursor of an empty page: %+v, %v", got, err)
	}
}

// TestStoredQueries: the recovery worker reads a stored query with numbers, booleans and texts.
func TestStoredQueries(t *testing.T) {
	t.Parallel()
	decoded, err := decodeStored[gen.ListUnreadMessagesRequestObject]([]byte("mark_read=false&page=2&page_size=5&read_through=c1AQ&wait=60"))
	want := gen.ListUnreadMessagesRequestObject{Params: gen.ListUnreadMessagesParams{Page: 2, PageSize: 5, Wait: 60, ReadThrough: new("c1AQ")}}
	if err != nil || cmp.Diff(any(want), decoded) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(any(want), decoded))
	}
}

// TestMadeUpCursors: a cursor with more than a page has, which only its caller can have made up, is none.
func TestMadeUpCursors(t *testing.T) {
	t.Parallel()
	agent := uuid.New()
	of := func(ranges, notices int) string {
		through := store.Through{}
		for range ranges {
			through.Ranges = append(through.Ranges, store.ReadRange{Conversation: uuid.New(), Oldest: 1, Newest: 2})
		}
		for number := range notices {
			through.Notices = append(through.Notices, int64(number)+1)
		}
		return cursorOf(agent, through)
	}
	if through, err := parseCursor(agent, of(store.MaxPage, store.MaxNotices)); err != nil || len(through.Ranges) != store.MaxPage ||
		len(through.Notices) != store.MaxNotices {
		t.Errorf("the cursor of a full page names %d ranges and %d notices (%v)", len(through.Ranges), len(through.Notices), err)
	}
	for _, cursor := range []string{of(store.MaxPage+1, 0), of(0, store.MaxNotices+1)} {
		if _, err := parseCursor(agent, cursor); !errors.Is(err, store.ErrNotACursor) {
			t.Errorf("a cursor of %d characters: %v, want ErrNotACursor", len(cursor), err)
		}
	}
}
