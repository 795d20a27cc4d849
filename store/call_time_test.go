package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// TestCallTime: the waits of one call add up to no more than its time, whatever it waits for. The database answers each statement
// just within the limit of a statement. The test allows for a busy machine.
func TestCallTime(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	route, databaseURL := storetest.RouteTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	if !testkit.Eventually(20*time.Second, func() bool {
		_, err := s.AgentByID(t.Context(), uuid.New())
		return !store.Unavailable(err)
	}) {
		t.Fatal("the database is unavailable")
	}
	ctx, cancel := context.WithTimeout(t.Context(), store.CallTime)
	defer cancel()
	begun := time.Now()
	route.Cut(true)
	results := []error{}
	for range 3 {
		_, lookUp := s.AgentByID(ctx, uuid.New())
		_, unread := s.Unread(ctx, uuid.New(), longPage(1, 10))
		message := store.OutgoingMessage{Kind: store.KindGroup, To: uuid.New(), Sender: uuid.New(), Content: "hello"}
		results = append(results, lookUp, unread, s.DryRun(ctx, sending(message)),
			commit(ctx, s, sending(), deliveryOf(&store.Payment{PaymentRecord: store.PaymentRecord{ID: uuid.New()}})))
	}
	if took := time.Since(begun); took > store.CallTime+5*time.Second {
		t.Errorf("twelve steps of one call took %v, want at most %v", took, store.CallTime)
	}
	for i, err := range results {
		if !store.Unavailable(err) {
			t.Errorf("step %d: %v, want an error of an unavailable database", i, err)
		}
	}
	if last := results[len(results)-1]; !store.NotCommitted(last) {
		t.Errorf("a step without time: %v, want one that was not sent", last)
	}
}
