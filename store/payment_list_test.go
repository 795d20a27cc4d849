package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

var firstOfMay = time.Date(2026, time.May, 1, 0, 0, 0, 0, time.UTC)

// fillLedger writes n payments, begun every five minutes in threes from the first of May on. They take turns through the
// seven states and three operations; number i has the amount i and pays from 0xaa or 0xbb.
func fillLedger(t *testing.T, connection *pgx.Conn, n int, agent uuid.UUID) {
	t.Helper()
	_, err := connection.Exec(t.Context(), `
		INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			fingerprint, signature_hash, payment_identifier, request, payload, state, transaction, failure_reason, attempts, lease_until,
			response, created_at, updated_at)
		SELECT gen_random_uuid(), 2, 'exact', 'eip155:84532', '0xa',
		CASE WHEN i % 2 = 0 THEN '0xaa' ELSE '0xbb' END, '0x' || i, '0xd', i, at + interval '1 hour',
			(ARRAY['send', 'create', 'search'])[1 + i % 3], CASE WHEN i % 5 = 0 THEN CAST($2 AS uuid) END, sha256('x'), sha256('x'), 
			'identifier-' || i,
			CASE WHEN state IN ('settling', 'unknown') THEN CAST('secret' AS bytea) END,
			CASE WHEN state IN ('settling', 'unknown') THEN CAST('secret' AS bytea) END,
			state, CASE WHEN state = 'delivered' THEN '0xf' || i ELSE '' END,
			CASE WHEN state = 'failed' THEN 'too poor' ELSE '' END, 1, at + interval '1 minute',
			CASE WHEN state = 'delivered' THEN CAST('secret' AS bytea) END, at, at + interval '1 second'
		FROM (
			SELECT i, (ARRAY['settling', 'unknown', 'delivered', 'failed', 'undeliverable'])[1 + i % 5] AS state,
				TIMESTAMPTZ '2026-05-01 00:00:00Z' + (i - 1) / 3 * interval '5 minutes' AS at
			FROM generate_series(1, $1) AS i
		) AS made`, n, agent)
	testkit.NoError(t, err)
}

func records(t *testing.T, s *store.Store, filter store.PaymentFilter) []store.PaymentRecord {
	t.Helper()
	var all []store.PaymentRecord
	for record, err := range s.PaymentRecords(t.Context(), filter) {
		testkit.NoError(t, err)
		all = append(all, record)
	}
	return all
}

// TestPaymentRecords reads ten thousand payments, of which many share their time, by every filter.
func TestPaymentRecords(t *testing.T) {
	t.Parallel()
	const n = 10_000
	s, connection := openBeside(t)
	alice := agent(t, s, "alice")
	fillLedger(t, connection, n, alice)

	all := records(t, s, store.PaymentFilter{})
	seen := map[uuid.UUID]bool{}
	for i, record := range all {
		seen[record.ID] = true
		if i > 0 && (record.CreatedAt.Before(all[i-1].CreatedAt) ||
			record.CreatedAt.Equal(all[i-1].CreatedAt) && record.ID.String() < all[i-1].ID.String()) {
			t.Fatalf("record %d stands behind a younger one", i)
		}
	}
	if len(all) != n || len(seen) != n {
		t.Fatalf("%d records of %d payments, want %d", len(all), len(seen), n)
	}
	backwards := records(t, s, store.PaymentFilter{NewestFirst: true})
	slices.Reverse(backwards)
	if !cmp.Equal(all, backwards) {
		t.Error("the newest first are not the oldest first, backwards")
	}

	checkFilters(t, s, all, alice)
	checkSums(t, s, all)
	one := all[4710]
	want := store.PaymentRecord{
		ID: one.ID, X402Version: 2, Scheme: "exact", Network: "eip155:84532", Asset: "0xa", Payer: one.Payer, Nonce: one.Nonce, PayTo: "0xd",
		Amount: one.Amount, ValidBefore: one.CreatedAt.Add(time.Hour), Operation: one.Operation, AgentID: one.AgentID,
		PaymentIdentifier: one.PaymentIdentifier,
		State:             one.State, Transaction: one.Transaction, FailureReason: one.FailureReason, Attempts: 1,
		LeaseUntil: one.CreatedAt.Add(time.Minute), CreatedAt: one.CreatedAt, UpdatedAt: one.CreatedAt.Add(time.Second),
	}
	got, err := s.PaymentRecord(t.Context(), one.ID)
	if diff := cmp.Diff(&want, got); err != nil || diff != "" || *one.PaymentIdentifier == "" {
		t.Errorf("one payment: %v (-want +got):\n%s", err, diff)
	}
	if got, err := s.PaymentRecord(t.Context(), uuid.New()); got != nil || err != nil {
		t.Errorf("no payment: %v, %v, want nothing", got, err)
	}
	terms, err := s.PaymentTerms(t.Context())
	if diff := cmp.Diff([]store.PaymentTerms{{Network: "eip155:84532", Asset: "0xa", PayTo: "0xd"}}, terms); err != nil || diff != "" {
		t.Errorf("the terms: %v (-want +got):\n%s", err, diff)
	}
}

// checkFilters compares the records that pass a filter with those of all.
func checkFilters(t *testing.T, s *store.Store, all []store.PaymentRecord, alice uuid.UUID) {
	t.Helper()
	for name, test := range map[string]struct {
		filter store.PaymentFilter
		passes func(r store.PaymentRecord) bool
	}{
		"a state": {store.PaymentFilter{States: []string{"failed"}}, func(r store.PaymentRecord) bool { return r.State == "failed" }},
		"two states": {store.PaymentFilter{States: []string{"failed", "unknown"}},
			func(r store.PaymentRecord) bool { return r.State == "failed" || r.State == "unknown" }},
		"no state":     {store.PaymentFilter{States: []string{}}, func(store.PaymentRecord) bool { return false }},
		"an operation": {store.PaymentFilter{Operation: "send"}, func(r store.PaymentRecord) bool { return r.Operation == "send" }},
		"a payer":      {store.PaymentFilter{Payer: "0xaa"}, func(r store.PaymentRecord) bool { return r.Amount%2 == 0 }},
		"an agent":     {store.PaymentFilter{AgentID: &alice}, func(r store.PaymentRecord) bool { return r.Amount%5 == 0 }},
		"the terms": {store.PaymentFilter{Network: "eip155:84532", Asset: "0xa", PayTo: "0xd"},
			func(store.PaymentRecord) bool { return true }},
		"another chain": {store.PaymentFilter{Network: "eip155:1"}, func(store.PaymentRecord) bool { return false }},
		"another token": {store.PaymentFilter{Asset: "0xe"}, func(store.PaymentRecord) bool { return false }},
		"another payee": {store.PaymentFilter{PayTo: "0xe"}, func(store.PaymentRecord) bool { return false }},
		"a time": {store.PaymentFilter{Since: firstOfMay.Add(time.Hour), Until: firstOfMay.Add(3 * time.Hour)},
			func(r store.PaymentRecord) bool { return r.Amount > 36 && r.Amount <= 108 }},
		"all at once": {store.PaymentFilter{States: []string{"delivered"}, Operation: "search", Payer: "0xaa", AgentID: &alice,
			Since: firstOfMay},
			func(r store.PaymentRecord) bool {
				return r.State == "delivered" && r.Operation == "search" && r.Amount%10 == 0
			}},
	} {
		var want []store.PaymentRecord
		for _, record := range all {
			if test.passes(record) {
				want = append(want, record)
			}
		}
		if got := records(t, s, test.filter); !cmp.Equal(want, got) {
			t.Errorf("%s: %d records, want %d", name, len(got), len(want))
		}
	}
}

// checkSums compares the sums of each day and operation with those of all records.
func checkSums(t *testing.T, s *store.Store, all []store.PaymentRecord) {
	t.Helper()
	sums, err := s.PaymentSums(t.Context(), store.PaymentFilter{})
	testkit.NoError(t, err)
	type key struct {
		day       time.Time
		operation string
	}
	wantSums := map[key]*store.PaymentSums{}
	for _, record := range all {
		k := key{record.CreatedAt.UTC().Truncate(24 * time.Hour), record.Operation}
		if wantSums[k] == nil {
			wantSums[k] = &store.PaymentSums{Day: k.day, Operation: k.operation}
		}
		sum := map[string]*store.PaymentSum{"delivered": &wantSums[k].Delivered, "undeliverable": &wantSums[k].Undeliverable,
			"failed": &wantSums[k].Failed}[record.State]
		if sum == nil {
			sum = &wantSums[k].Open
		}
		sum.Calls++
		sum.Amount += record.Amount
	}
	for i, sum := range sums {
		if diff := cmp.Diff(wantSums[key{sum.Day.UTC(), sum.Operation}], &sum, cmp.Comparer(time.Time.Equal)); diff != "" {
			t.Errorf("%s on %s (-want +got):\n%s", sum.Operation, sum.Day, diff)
		}
		if i > 0 && (sum.Day.Before(sums[i-1].Day) || sum.Day.Equal(sums[i-1].Day) && sum.Operation <= sums[i-1].Operation) {
			t.Errorf("%s on %s stands behind %s on %s", sum.Operation, sum.Day, sums[i-1].Operation, sums[i-1].Day)
		}
	}
	if len(sums) != len(wantSums) {
		t.Errorf("%d sums, want %d", len(sums), len(wantSums))
	}
	if sums, err := s.PaymentSums(t.Context(), store.PaymentFilter{Until: firstOfMay.Add(time.Hour), Payer: "0xaa"}); err != nil ||
		len(sums) != 3 {
		t.Errorf("the first hour has %d sums, %v, want one for each operation", len(sums), err)
	}
}

// TestResolve: an operator's word counts only while the outcome is unknown.
func TestResolve(t *testing.T) {
	t.Parallel()
	s, connection := openBeside(t)
	fillLedger(t, connection, 10, agent(t, s, "alice"))
	const transaction = "0xabc"
	settled := func(id uuid.UUID) error {
		return s.ResolveSettled(t.Context(), store.Operator{Actor: "olga", Reason: "looked up"}, id, transaction)
	}
	failed := func(id uuid.UUID) error {
		return s.ResolveFailed(t.Context(), store.Operator{Actor: "olga", Reason: "looked up"}, id, "not on the chain")
	}
	var unknown []store.PaymentRecord
	for _, before := range records(t, s, store.PaymentFilter{}) {
		if before.State == store.PaymentUnknown {
			unknown = append(unknown, before)
			continue
		}
		for _, resolve := range []func(uuid.UUID) error{settled, failed} {
			if err := resolve(before.ID); !errors.Is(err, store.ErrStalePayment) {
				t.Errorf("a payment that is %s is resolved: %v, want that it has changed", before.State, err)
			}
		}
		if after, err := s.PaymentRecord(t.Context(), before.ID); err != nil || !cmp.Equal(&before, after) {
			t.Errorf("a payment that is %s has changed: %+v, %v", before.State, after, err)
		}
	}
	if len(unknown) != 2 {
		t.Fatalf("%d payments are unknown, want 2", len(unknown))
	}

	// The username that the failed payment held is free again.
	if err := s.Transaction(t.Context(), func(tx *store.Tx) error {
		return tx.RequestAccount(t.Context(), "bob", "0xpayer", store.HashKey("TAN"), uuid.New())
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := connection.Exec(t.Context(), `UPDATE registrations SET claimed_by = $1`, unknown[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := failed(unknown[0].ID); err != nil {
		t.Errorf("resolve as failed: %v", err)
	}
	after, err := s.PaymentRecord(t.Context(), unknown[0].ID)
	if err != nil || after.State != store.PaymentFailed || after.FailureReason != "not on the chain" {
		t.Errorf("resolved as failed: %+v, %v", after, err)
	}
	var kept bool
	err =
		connection.QueryRow(t.Context(), `SELECT payload IS NOT NULL OR request IS NOT NULL OR EXISTS (SELECT FROM registrations
			WHERE claimed_by IS NOT NULL)
		FROM payments WHERE id = $1`, unknown[0].ID).Scan(&kept)
	if err != nil || kept {
		t.Errorf("something is kept for a failed payment: %v, %v", kept, err)
	}

	if err := settled(unknown[1].ID); err != nil {
		t.Errorf("resolve as settled: %v", err)
	}
	after, err = s.PaymentRecord(t.Context(), unknown[1].ID)
	if err != nil || after.State != store.PaymentUnknown || after.Transaction != transaction ||
		time.Since(after.LeaseUntil).Abs() > time.Minute {
		t.Errorf("resolved as settled: %+v, %v, want it unknown with its transaction and free now", after, err)
	}
	if err := failed(unknown[1].ID); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("a payment that is known to be settled is resolved as failed: %v", err)
	}
	if after, err = s.PaymentRecord(t.Context(), unknown[1].ID); err != nil || after.State != store.PaymentUnknown {
		t.Errorf("after that it is %+v, %v, want it unknown", after, err)
	}
	if err := settled(uuid.New()); !errors.Is(err, store.ErrStalePayment) {
		t.Errorf("no payment at all is resolved: %v", err)
	}
}

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
