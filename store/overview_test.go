package store_test

import (
	"testing"

	"github.com/parley-chat/parley/store"
)

// TestOverview: the figures of the operator's page.
func TestOverview(t *testing.T) {
	t.Parallel()
	s, connection := openBeside(t)
	for _, name := range []string{"alice", "bob", "carol"} {
		agent(t, s, name)
	}
	newest, err := s.NewestAgents(t.Context(), 2)
	if err != nil || len(newest) != 2 || newest[0].Username != "carol" || newest[1].Username != "bob" || newest[0].CreatedAt.IsZero() {
		t.Errorf("the two newest of alice, bob and carol: %v (%v), want carol and bob", newest, err)
	}

	fillLedger(t, connection, 100, agent(t, s, "dave")) // twenty of each of five states
	open, err := s.OldestOpenPayments(t.Context(), 7)
	if err != nil || len(open) != 14 {
		t.Fatalf("%d open payments (%v), want seven without an outcome and seven undeliverable ones", len(open), err)
	}
	for i, record := range open {
		unsettled := record.State == store.PaymentSettling || record.State == store.PaymentUnknown
		if unsettled != (i < 7) || (!unsettled && record.State != store.PaymentUndeliverable) {
			t.Errorf("payment %d of the list is %s", i, record.State)
		}
		if i%7 > 0 && record.CreatedAt.Before(open[i-1].CreatedAt) {
			t.Errorf("payment %d is older than the one before it", i)
		}
	}
	if first := open[0]; first.Amount != 1 || first.Payer != "0xbb" || first.Operation != "create" {
		t.Errorf("the oldest open payment is %+v, want the first one of the ledger", first)
	}

	storage, err := s.Storage(t.Context(), 3)
	if err != nil || len(storage.Tables) != 3 || storage.Database < storage.Tables[0].Bytes ||
		storage.Tables[0].Bytes < storage.Tables[1].Bytes {
		t.Errorf("the storage is %+v (%v), want three tables, the largest first", storage, err)
	}
	for _, table := range storage.Tables {
		if table.Name == "payments" && table.Bytes == 0 {
			t.Errorf("the table of payments is empty: %+v", storage)
		}
	}
	if version, err := s.AppliedSchema(t.Context()); err != nil || version != store.SchemaVersion() {
		t.Errorf("the schema is %d (%v), want %d", version, err, store.SchemaVersion())
	}
}
