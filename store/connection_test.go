package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestSilentDatabase: no call waits longer than five seconds for a database that does not answer. After the first calls, calls are
// refused within a second. When the database is back, calls succeed again. The test allows for a busy machine.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	calls := map[string]func() error{
		"a statement of pgx": func() error {
			_, err := s.Unread(t.Context(), uuid.New(), 1, 10)
			return err
		},
		"a statement of GORM": func() error {
			_, err := s.AgentByID(t.Context(), uuid.New())
			return err
		},
		"a transaction": func() error {
			return s.Transaction(t.Context(), func(tx *store.Store) error { return tx.CheckAgents(t.Context(), nil) })
		},
	}
	all := func(most time.Duration) (failed int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for name, call := range calls {
			for range 20 {
				group.Go(func() {
					begun := time.Now()
					err := call()
					mu.Lock()
					defer mu.Unlock()
					if took := time.Since(begun); took > most {
						t.Errorf("%s took %v, want at most %v (%v)", name, took, most, err)
					}
					if store.Unavailable(err) {
						failed++
					}
				})
			}
		}
		group.Wait()
		return failed
	}
	if failed := all(8 * time.Second); failed > 0 {
		t.Fatalf("%d calls fail before the fault", failed)
	}
	route.Cut(true)
	if failed := all(8 * time.Second); failed != 60 {
		t.Errorf("%d of 60 calls are refused while the database is cut off", failed)
	}
	if failed := all(3 * time.Second); failed != 60 {
		t.Errorf("%d of 60 later calls are refused while the database is cut off", failed)
	}
	route.Cut(false)
	for deadline := time.Now().Add(10 * time.Second); all(8*time.Second) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("calls fail although the database is back")
		}
	}
}
