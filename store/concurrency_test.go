package store_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// pollInOrder polls until the agent has seen so many messages, and returns how many it has seen. Each conversation must
// show its numbers 1, 2, 3 …
func pollInOrder(t *testing.T, s *store.Store, poller uuid.UUID, all int) (seen int) {
	newest := map[uuid.UUID]int64{}
	for deadline := time.Now().Add(5 * time.Minute); seen < all; {
		if time.Now().After(deadline) {
			t.Errorf("poller %s has seen %d messages after five minutes", poller, seen)
			return seen
		}
		var page *store.Unread
		err := s.Transaction(t.Context(), func(tx *store.Tx) (err error) {
			page, err = tx.ReadUnread(t.Context(), poller, 1, 250)
			return err
		})
		if err != nil {
			t.Errorf("poller %s: %v", poller, err)
			return seen
		}
		for _, message := range page.Messages {
			if message.Number != newest[message.ConversationID]+1 {
				t.Errorf("poller %s: number %d follows %d", poller, message.Number, newest[message.ConversationID])
				return seen
			}
			newest[message.ConversationID] = message.Number
			seen++
		}
	}
	return seen
}

// TestEveryPollerSeesEveryMessage: 32 senders write tens of thousands of messages to ten conversations while eight
// agents poll. Every poller sees every message of others exactly once and in order, the counters agree with what was
// sent, and nothing waits for ever.
func TestEveryPollerSeesEveryMessage(t *testing.T) {
	t.Parallel()
	const senders, pollers, conversations = 32, 8, 10
	each := testkit.Times(640)
	s := storetest.New(t)
	ctx := t.Context()
	var members []uuid.UUID
	for i := range senders + pollers {
		members = append(members, agent(t, s, fmt.Sprintf("agent_%d", i)))
	}
	var groups []uuid.UUID
	for i := range conversations {
		group := uuid.Must(uuid.NewV7())
		groups = append(groups, group)
		err := s.Transaction(ctx, func(tx *store.Tx) error {
			if err := tx.CreateConversation(ctx, store.KindGroup, group, members[0], fmt.Sprintf("group %d", i), nil, false); err != nil {
				return err
			}
			return tx.Join(ctx, group, members...)
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	var writing, reading sync.WaitGroup
	for i := range senders {
		writing.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range each {
				sent, err := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) {
					return tx.SendMessage(ctx, toGroup(members[i], groups[random.IntN(conversations)], fmt.Sprintf("message %d of sender %d", n, i)))
				})
				if err != nil {
					t.Errorf("sender %d: %v %v", i, sent, err)
					return
				}
			}
		})
	}
	seen := make([]int, pollers)
	for i := range pollers {
		reading.Go(func() { seen[i] = pollInOrder(t, s, members[senders+i], senders*each) })
	}
	writing.Wait()
	reading.Wait()

	total := int64(0)
	for _, group := range groups {
		view, err := s.ConversationView(ctx, store.KindGroup, group, members[senders])
		if err != nil {
			t.Fatal(err)
		}
		total += view.LastNumber
		if view.ReadNumber != view.LastNumber {
			t.Errorf("the first poller has read up to %d of %d", view.ReadNumber, view.LastNumber)
		}
	}
	if total != int64(senders*each) {
		t.Errorf("the counters say %d messages, %d were sent", total, senders*each)
	}
	for i, count := range seen {
		if count != senders*each {
			t.Errorf("poller %d saw %d messages, want %d", i, count, senders*each)
		}
	}
	for i := range pollers {
		if left, err := s.Unread(ctx, members[senders+i], 1, 1); err != nil || left.Total != 0 {
			t.Errorf("poller %d has %d unread in the end (%v)", i, left.Total, err)
		}
	}
	// A sender has never read: everything but its own is unread to it.
	if unread, err := s.Unread(ctx, members[0], 1, 1); err != nil || unread.Total != int64(senders*each-each) {
		t.Errorf("the first sender has %d unread (%v), want %d", unread.Total, err, senders*each-each)
	}
}
