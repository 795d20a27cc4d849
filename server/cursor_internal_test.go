package server

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

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
