package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// present opens a store that shows the others that it lives, until the test ends.
func present(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.Limits{})
	testkit.NoError(t, err)
	living, end := context.WithCancel(t.Context())
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() { s.BePresent(living, func() { close(ready) }); close(gone) }()
	<-ready
	t.Cleanup(func() { end(); <-gone; s.Close() })
	return s
}

// TestReplacedKeysEnd: a replaced key is unknown at once to the server that replaced it, and within two seconds to
// another one that used it a moment before, although nothing tells that one.
func TestReplacedKeysEnd(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	here, there := present(t, url), present(t, url)
	agent(t, here, "key_0")
	known := func(by *store.Store, key string) *store.Agent {
		t.Helper()
		alice, err := by.AgentByKey(ctx, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return alice
	}
	unknown := func(by *store.Store, key string) bool {
		_, err := by.AgentByKey(ctx, key)
		return errors.Is(err, store.ErrAgentNotFound)
	}
	replace := func(alice *store.Agent, key string) {
		t.Helper()
		if err := here.Transaction(ctx, func(tx *store.Tx) error {
			return tx.RotateKey(ctx, alice, store.HashKey(key),
				uuid.New())
		}); err != nil {
			t.Fatal(err)
		}
	}
	for i, key := range []string{"key_0", "key_1", "key_2"} {
		next := []string{"key_1", "key_2", "key_3"}[i]
		known(there, key)
		replace(known(here, key), next)
		replaced := time.Now()
		if !unknown(here, key) {
			t.Errorf("the server that replaced %s still knows it", key)
		}
		alice := known(there, next)
		for asked := time.Now(); !unknown(there, key); asked = time.Now() {
			if asked.Sub(replaced) > 2*time.Second {
				t.Fatalf("another server knows %s two seconds after it was replaced", key)
			}
			known(there, next) // as the agent does that has its new key
			time.Sleep(10 * time.Millisecond)
		}
		if err := there.KeyUsed(ctx, alice); err != nil { // else the agent is between two keys, and not cached
			t.Fatal(err)
		}
	}
}

// TestPresenceStays: a server that nothing happens to keeps its connection over several heartbeats, and one whose
// connection PostgreSQL ends makes a new one.
func TestPresenceStays(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	present(t, url)
	connection := connect(t, url)
	holder := func() (pid int) {
		t.Helper()
		err := connection.QueryRow(ctx, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
		return pid
	}
	first := holder()
	time.Sleep(12 * time.Second)
	if now := holder(); now != first {
		t.Errorf("after two heartbeats the lock is held by connection %d, want %d", now, first)
	}
	if _, err := connection.Exec(ctx, "SELECT pg_terminate_backend($1)", first); err != nil {
		t.Fatal(err)
	}
	for ended := time.Now(); holder() == first || holder() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(ended) > 30*time.Second {
			t.Fatal("30 s after its connection ended the server is not present")
		}
	}
}
