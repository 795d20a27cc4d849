package store_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestFailedReadIsAlone: of calls whose reads share a round trip, only those fail whose own statements do.
func TestFailedReadIsAlone(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	s, err := store.Open(ctx, url, storetest.Patient)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	alice := agent(t, s, "key")
	broken, err := pgxpool.New(ctx, url)
	testkit.NoError(t, err)
	defer broken.Close()
	if _, err := broken.Exec(ctx, "ALTER TABLE blocks RENAME TO elsewhere"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if _, err := s.Profile(ctx, alice, &alice, nil); err == nil || errors.Is(err, store.ErrAgentNotFound) {
				t.Errorf("a read of a table that is not there: %v", err)
			}
		})
		all.Go(func() {
			if found, err := s.ConversationView(ctx, store.KindGroup, alice, alice); !errors.Is(err, store.ErrChatNotFound) {
				t.Errorf("a read beside it: %v, %v, want that there is no such chat", found, err)
			}
		})
	}
	all.Wait()
}
