package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// present opens a store that hears of changes until the test ends.
func present(t *testing.T, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	living, end := context.WithCancel(t.Context())
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() { s.BePresent(living, func() { close(ready) }); close(gone) }()
	<-ready
	t.Cleanup(func() { end(); <-gone; s.Close() })
	return s
}

// TestReplacedKeysAreForgotten: a server that remembers an agent by its key stops doing so when another server replaces
// the key, also if it could not hear of it, and its own changes count before they are answered.
func TestReplacedKeysAreForgotten(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	here, there := present(t, url), present(t, url)
	agent(t, here, "key_0")
	within := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	remember := func(key string) *store.Agent {
		t.Helper()
		var alice *store.Agent
		within("the agent is not remembered", func() bool {
			var err error
			if alice, err = here.AgentByKey(ctx, key); err != nil {
				t.Fatal(err)
			}
			return here.CachedAgents() == 1
		})
		return alice
	}
	replace := func(by *store.Store, alice *store.Agent, key string) {
		t.Helper()
		if err := by.Transaction(ctx, func(tx *store.Store) error { return tx.RotateKey(ctx, alice, store.HashKey(key)) }); err != nil {
			t.Fatal(err)
		}
		if alice, err = by.AgentByKey(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := by.ForgetPreviousKey(ctx, alice); err != nil { // else it is between two keys, and not remembered
			t.Fatal(err)
		}
	}
	unknown := func(key string) bool {
		_, err := here.AgentByKey(ctx, key)
		return errors.Is(err, store.ErrAgentNotFound)
	}

	replace(here, remember("key_0"), "key_1")
	if !unknown("key_0") {
		t.Error("after its own change the server still knows the replaced key")
	}
	replace(there, remember("key_1"), "key_2")
	within("another server's change is not heard of", func() bool { return unknown("key_1") })

	alice := remember("key_2")
	if _, err := connection.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`); err != nil {
		t.Fatal(err)
	}
	replace(there, alice, "key_3")
	within("a change that could not be heard of goes unnoticed", func() bool { return unknown("key_2") })
	remember("key_3")
}

// TestPresenceStays: a server that nothing happens to keeps its connection over several heartbeats, and goes on hearing.
func TestPresenceStays(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), storetest.URL(t)
	s := present(t, url)
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	holder := func() (pid int) {
		t.Helper()
		if err := connection.QueryRow(ctx, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	first := holder()
	agent(t, s, "alice")
	time.Sleep(12 * time.Second)
	for range 2 {
		if _, err := s.AgentByKey(ctx, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	if s.CachedAgents() != 1 || holder() != first {
		t.Errorf("after two heartbeats %d agents are remembered, and the lock is held by connection %d, want 1 and %d", s.CachedAgents(), holder(), first)
	}
}
