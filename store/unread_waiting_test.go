package store_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// TestQuietGroups: what happens in a group chat to which an agent was added is not announced to its waits, nor is that it was added. Once
// it has used the group chat, it is.
func TestQuietGroups(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	admin, added, group := g.agents[0], g.agents[1], uuid.Must(uuid.NewV7())
	var heard []uuid.UUID
	g.Listen(func(ids []uuid.UUID) { heard = append(heard, ids...) })
	do := func(what func(tx *store.Tx) error) {
		t.Helper()
		testkit.NoError(t, g.Transaction(t.Context(), what))
	}
	do(func(tx *store.Tx) error {
		return tx.CreateConversation(t.Context(), store.KindGroup, group, admin, "a group", nil, false)
	})
	add := func() {
		do(func(tx *store.Tx) error {
			return tx.AddGroupMembers(t.Context(), group, admin, []uuid.UUID{admin, added})
		})
	}
	if add(); len(heard) > 0 {
		t.Errorf("the addition is announced to %v", heard)
	}
	after := func(what string, agent uuid.UUID, want bool) { // the other one sends a message
		t.Helper()
		other := map[uuid.UUID]uuid.UUID{added: admin, admin: added}[agent]
		if _, err := g.SendAnywhere(t.Context(), group, other, uuid.Must(uuid.NewV7()), "text"); err != nil {
			t.Fatal(err)
		}
		sources, err := g.Sources(t.Context(), agent)
		testkit.NoError(t, err)
		if got := slices.Contains(sources, group); got != want {
			t.Errorf("after %s, the group is among the sources: %v, want %v", what, got, want)
		}
		if got := g.haveUnread(agent, store.Through{}); got != want {
			t.Errorf("after %s, a message there ends a wait: %v, want %v", what, got, want)
		}
	}
	poll := func(agent uuid.UUID) {
		do(func(tx *store.Tx) error {
			unread, err := tx.ReadUnread(t.Context(), agent, longPage(1, 50))
			if err == nil && len(unread.Messages)+len(unread.Notices) == 0 {
				t.Error("a poll returns nothing")
			}
			return err
		})
	}
	poll(admin) // other conversations
	poll(added)
	after("an addition", added, false)
	poll(added)
	after("a poll that returned a message", added, false)
	poll(added)
	after("the creation of the group", admin, true) // the one that was added has written
	after("its own message", added, true)
	poll(added)
	do(func(tx *store.Tx) error { return tx.Remove(t.Context(), group, admin, []uuid.UUID{added}) })
	add()
	after("another addition", added, false)
	do(func(tx *store.Tx) error {
		return tx.MarkFirstRead(t.Context(), added, store.ReadRange{Conversation: group, Oldest: 1, Newest: 4})
	})
	after("a look at the messages", added, true)
}
