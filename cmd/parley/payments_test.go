//go:build !noserver

package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// books are a ledger and a chain to be compared.
type books struct {
	t          *testing.T
	url        string
	connection *pgx.Conn
	chain      *devnet.Ledger
	rpcURL     string
	asset      string
	count      int
}

// newBooks makes them empty, but for what is in the chain's journal.
func newBooks(t *testing.T, journal ...string) *books {
	t.Helper()
	b := &books{t: t, url: storetest.URL(t)}
	var err error
	b.connection, err = pgx.Connect(t.Context(), b.url)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = b.connection.Close(context.Background()) })
	folder := ""
	if len(journal) > 0 {
		folder = t.TempDir()
		testkit.NoError(t, os.WriteFile(filepath.Join(folder, "dev-ledger.jsonl"), []byte(strings.Join(journal, "\n")+"\n"), 0o600))
	}
	b.chain, err = devnet.OpenLedger(folder)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = b.chain.Close() })
	server := httptest.NewServer(devnet.NewFacilitator(b.chain))
	t.Cleanup(server.Close)
	network, _ := x402.LookupNetwork(devnet.NetworkID)
	b.rpcURL, b.asset = server.URL+"/rpc", strings.ToLower(network.Asset)
	return b
}

// entry is a payment of 0.005 USD by an account, in the ledger.
type entry struct {
	id      string
	account int
	nonce   string
	amount  uint64
}

// enter writes a payment that was begun two minutes ago. change sets columns to SQL expressions.
func (b *books) enter(state string, account int, change map[string]string) entry {
	b.t.Helper()
	b.count++
	e := entry{uuid.Must(uuid.NewV7()).String(), account, fmt.Sprintf("0x%064x", b.count), 5000}
	columns := map[string]string{
		"id": quote(e.id), "x402_version": "2", "scheme": "'exact'", "network": quote(devnet.NetworkID), "asset": quote(b.asset),
		"payer": quote(
			strings.ToLower(devnet.Accounts()[account].Address)), "nonce": quote(e.nonce), "pay_to": quote(strings.ToLower(devnet.Payee)),
		"amount": "5000", "valid_before": "now() + interval '1 hour'", "operation": "'sendPrivateMessage'", "fingerprint": "sha256('x')",
		"signature_hash": "sha256('x')", "state": quote(state), "attempts": "1", "lease_until": "now()",
		"created_at": fmt.Sprintf("now() - interval '2 minutes' + %d * interval '1 second'",
			b.count), "updated_at": "now() - interval '1 minute'",
	}
	switch state {
	case store.PaymentSettling, store.PaymentUnknown:
		columns["request"], columns["payload"] = "'secret request'", "'secret payload'"
	case store.PaymentDelivered:
		columns["response"] = "'secret reply'"
	}
	maps.Copy(columns, change)
	names := slices.Sorted(maps.Keys(columns))
	var values []string
	for _, name := range names {
		values = append(values, columns[name])
	}
	b.exec("INSERT INTO payments (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
	return e
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// mine moves the money of an entry on the chain, or another amount.
func (b *books) mine(e entry, to string, amount uint64, transaction string) {
	b.t.Helper()
	testkit.NoError(b.t, b.chain.Transfer(devnet.Accounts()[e.account].Address, to, amount, e.nonce, transaction))
}

// paid is a payment that is in order in both books.
func (b *books) paid(account int) entry {
	b.t.Helper()
	transaction := hash(b.count + 1)
	e := b.enter(store.PaymentDelivered, account, map[string]string{"transaction": quote(transaction)})
	b.mine(e, devnet.Payee, e.amount, transaction)
	return e
}

func hash(n int) string { return fmt.Sprintf("0x%064x", 0xf00000+n) }

// run runs parley payments on the ledger.
func (b *books) run(args ...string) (string, error) {
	b.t.Helper()
	ran := invoke(b.t, append([]string{"payments"}, append(args, "--database-url", b.url)...)...)
	if strings.Contains(ran.out+ran.errs, "secret") {
		b.t.Errorf("payments %v tells a secret:\n%s%s", args, ran.out, ran.errs)
	}
	return ran.out, ran.err
}

// text wants no error.
func (b *books) text(args ...string) string {
	b.t.Helper()
	out, err := b.run(args...)
	if err != nil {
		b.t.Fatalf("payments %v: %v\n%s", args, err, out)
	}
	return out
}

func (b *books) lines(args ...string) []string {
	b.t.Helper()
	return slices.Collect(strings.Lines(b.text(args...)))
}

func (b *books) exec(change string) {
	b.t.Helper()
	_, err := b.connection.Exec(b.t.Context(), change)
	testkit.NoError(b.t, err)
}

func TestPaymentsLists(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	for range 60 {
		b.enter(store.PaymentDelivered, 0, nil)
	}
	failed := b.enter(store.PaymentFailed, 1, map[string]string{"failure_reason": quote("no\x1b[2J money")})
	unknown := b.enter(store.PaymentUnknown, 2,
		map[string]string{"created_at": "'2026-05-01 10:00:00Z'", "attempts": "7", "failure_reason": "'who knows'"})

	if lines := b.lines("list"); len(lines) != 51 || !strings.Contains(lines[1], failed.id) || !strings.Contains(lines[1], " failed ") ||
		!strings.Contains(lines[1], "0.005000") {
		t.Errorf("the list has %d lines, want 51, the failed one first:\n%s", len(lines), strings.Join(lines, ""))
	}
	for name, test := range map[string]struct {
		args []string
		want int
	}{"a limit": {[]string{"--limit=3"}, 3}, "all": {[]string{"--limit=0"}, 62}, "a state": {[]string{"--state=failed"}, 1},
		"two states": {[]string{"--state=failed,unknown"}, 2}, "a payer": {[]string{"--payer=" + devnet.Accounts()[1].Address}, 1},
		"an operation": {[]string{"--operation=createAccount"}, 0}, "an agent": {[]string{"--agent=" + failed.id}, 0},
		"a day":    {[]string{"--since=2026-05-01", "--until=2026-05-02"}, 1},
		"an hour":  {[]string{"--since=2026-05-01T12:00:00+02:00", "--until=2026-05-01T10:00:01Z"}, 1},
		"too late": {[]string{"--since=2026-05-01T10:00:01Z", "--until=2026-05-02"}, 0},
	} {
		if lines := b.lines(append([]string{"list", "--json"}, test.args...)...); len(lines) != test.want {
			t.Errorf("%s: %d lines, want %d", name, len(lines), test.want)
		}
	}
	for _, args := range [][]string{{"list", "--state=paid"}, {"list", "--since=yesterday"}, {"list", "--agent=alice"}, {"show", "x"},
		{"show", uuid.NewString()}} {
		if out, err := b.run(args...); err == nil {
			t.Errorf("payments %v succeeds, want an error:\n%s", args, out)
		}
	}

	lines := b.lines("show", failed.id)
	if text := strings.Join(lines, ""); len(lines) != 26 || strings.Contains(text, "\x1b") ||
		!strings.Contains(text, "amount_usd          0.005000\n") {
		t.Errorf("the failed payment, want %d lines without control characters:\n%q", 26, text)
	}
	var shown map[string]any
	if err := json.Unmarshal([]byte(b.lines("show", "--json", unknown.id)[0]), &shown); err != nil || len(shown) != 26 {
		t.Errorf("the unknown payment as JSON: %v, %d members, want %d", err, len(shown), 26)
	}
	want := map[string]any{"id": unknown.id, "state": "unknown", "amount": 5000.0, "amount_usd": "0.005000",
		"created_at": "2026-05-01T10:00:00Z", "agent_id": nil, "attempts": 7.0}
	for name, value := range want {
		if shown[name] != value {
			t.Errorf("%s is %v, want %v", name, shown[name], value)
		}
	}

	b.enter(store.PaymentSettling, 3, nil)
	b.enter(store.PaymentSettling, 3, nil)
	b.enter(store.PaymentUndeliverable, 3, map[string]string{"failure_reason": "'pin_limit'"})
	open := b.lines("list", "--state=open")
	if len(open) != 5 || !strings.Contains(open[1], "pin_limit") || !strings.Contains(open[4], unknown.id) ||
		!strings.Contains(open[4], " 7 ") || !strings.Contains(open[4], "who knows") {
		t.Errorf("open payments, want four, the newest first, with attempts and reason:\n%s", strings.Join(open, ""))
	}
}

func TestPaymentsExport(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	formulas := []string{"=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "harmless", "a, \"b\"\nc"}
	for _, formula := range formulas {
		b.enter(store.PaymentFailed, 0, map[string]string{"failure_reason": quote(formula)})
	}
	for range 600 { // more than one page
		b.enter(store.PaymentDelivered, 1, nil)
	}
	out, err := b.run("export")
	testkit.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 608 {
		t.Fatalf("the CSV has %d rows, %v, want 608", len(rows), err)
	}
	position := map[string]int{}
	for i, name := range rows[0] {
		position[name] = i
	}
	var reasons []string
	for i, row := range rows[1:] {
		if i < len(formulas) {
			reasons = append(reasons, row[position["failure_reason"]])
		}
		if row[position["amount"]] != "5000" || row[position["amount_usd"]] != "0.005000" {
			t.Errorf("row %d has the amounts %s and %s", i, row[position["amount"]], row[position["amount_usd"]])
		}
		if _, err := time.Parse(time.RFC3339, row[position["created_at"]]); err != nil {
			t.Errorf("row %d: %v", i, err)
		}
	}
	if diff := cmp.Diff([]string{"'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\t=1", "harmless", "a, \"b\"\nc"}, reasons); diff != "" {
		t.Errorf("reasons in the CSV (-want +got):\n%s", diff)
	}
	if rows := b.lines("export", "--state=failed", "--format=json"); len(rows) != len(formulas) ||
		!strings.Contains(rows[0], `"failure_reason":"=1+1"`) {
		t.Errorf("the export as JSON, want %d lines:\n%s", len(formulas), strings.Join(rows, ""))
	}
}

func TestPaymentsSummary(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	on := func(time, operation string) map[string]string {
		return map[string]string{"created_at": quote(time), "operation": quote(operation)}
	}
	b.enter(store.PaymentDelivered, 0, on("2026-05-01 00:00:00Z", "send"))
	b.enter(store.PaymentDelivered, 0, on("2026-05-01 23:59:59Z", "send"))
	b.enter(store.PaymentFailed, 0, on("2026-05-01 12:00:00Z", "send"))
	b.enter(store.PaymentUnknown, 0, on("2026-05-01 12:00:00Z", "search"))
	b.enter(store.PaymentUndeliverable, 0, on("2026-05-02 00:00:00Z", "send"))
	want := [][]string{
		{"DAY", "OPERATION", "DELIVERED", "USD", "UNDELIVERABLE", "USD", "REFUSED", "USD", "OPEN", "USD", "DEPOSITED", "USD", "REFUNDED", "USD"},
		{"2026-05-01", "search", "0", "0.000000", "0", "0.000000", "0", "0.000000", "1", "0.005000", "0", "0.000000", "0", "0.000000"},
		{"2026-05-01", "send", "2", "0.010000", "0", "0.000000", "1", "0.005000", "0", "0.000000", "0", "0.000000", "0", "0.000000"},
		{"2026-05-02", "send", "0", "0.000000", "1", "0.005000", "0", "0.000000", "0", "0.000000", "0", "0.000000", "0", "0.000000"},
		{"total", "2", "0.010000", "1", "0.005000", "1", "0.005000", "1", "0.005000", "0", "0.000000", "0", "0.000000"},
	}
	var got [][]string
	lines := b.lines("summary")
	for _, line := range lines[:len(want)] {
		got = append(got, strings.Fields(line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the summary (-want +got):\n%s", diff)
	}
	text := strings.Join(strings.Fields(strings.Join(lines, "")), " ")
	// Three transactions of 0.0024 USD.
	testkit.Contains(t, text, "exact 3 0.015000 100.0 % 3 0.007200 48.0 %", "batch-settlement 0 0.000000 0.0 % 0 0.000000 0.0 %",
		"total 3 0.015000 100.0 % 3 0.007200 48.0 %")
	if lines := b.lines("summary", "--operation=send"); len(lines) != 4 {
		t.Errorf("the summary of an operation, want no settlement:\n%s", strings.Join(lines, ""))
	}
	testkit.Contains(t, b.text("summary", "--json", "--since=2026-05-02", "--payer="+devnet.Accounts()[0].Address),
		`{"days":[{"day":"2026-05-02","operation":"send","delivered":{"calls":0,"amount":0,"amount_usd":"0.000000"},`+
			`"undeliverable":{"calls":1,"amount":5000,"amount_usd":"0.005000"},"refused":{`, `,"open":{`, `,"deposited":{`, `,"refunded":{`,
		`}}],"total":{"delivered":{`, `},"settlement":null}`)
}

func TestPaymentsResolve(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	over := map[string]string{"valid_before": "now() - interval '1 minute'"}
	busy := b.enter(store.PaymentUnknown, 0, map[string]string{"valid_before": over["valid_before"], "owner": "7"})
	settled, failed := b.enter(store.PaymentUnknown, 0, nil), b.enter(store.PaymentUnknown, 0, over)
	young, delivered := b.enter(store.PaymentUnknown, 0, nil), b.enter(store.PaymentDelivered, 0, over)
	for name, test := range map[string]struct {
		args []string
		says string
	}{"no outcome": {[]string{settled.id}, "--settled"},
		"two outcomes":      {[]string{settled.id, "--not-settled", "--settled=" + hash(1)}, "can't be used together"},
		"half a hash":       {[]string{settled.id, "--settled=0xabc"}, "64 hex digits"},
		"nothing":           {[]string{uuid.NewString(), "--not-settled"}, "no payment"},
		"no id":             {[]string{"nope", "--not-settled"}, `"nope" is not the id of a payment`},
		"one at work":       {[]string{busy.id, "--not-settled"}, "a server is working on it"},
		"one still in time": {[]string{young.id, "--not-settled"}, "can still be settled until"},
		"a delivered one":   {[]string{delivered.id, "--not-settled"}, "is delivered; only"},
	} {
		if out, err := b.run(append([]string{"resolve", "--reason=looked up"}, test.args...)...); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("resolve %s: %v, want an error with %q\n%s", name, err, test.says, out)
		}
	}
	b.lines("resolve", "--reason=looked up", settled.id, "--settled=0x"+strings.ToUpper(hash(0xab)[2:]))
	b.lines("resolve", "--reason=looked up", failed.id, "--not-settled")
	testkit.Contains(t, b.text("show", "--json", settled.id), `"state":"unknown"`, `"transaction":"`+hash(0xab)+`"`)
	testkit.Contains(t, b.text("show", "--json", failed.id), `"state":"failed"`, `"failure_reason":"not_settled"`)
	var audited int
	if err := b.connection.QueryRow(t.Context(), `SELECT count(*) FROM audit WHERE action = 'payments.resolve' AND reason = 'looked up'
		AND target_id = ANY ($1)`, []string{settled.id, failed.id}).Scan(&audited); err != nil || audited != 2 {
		t.Errorf("the audit has %d of 2 resolutions (%v)", audited, err)
	}
	b.exec("UPDATE payments SET valid_before = now() WHERE id = " + quote(settled.id))
	if _, err := b.run("resolve", settled.id, "--not-settled", "--reason=x"); err == nil ||
		!strings.Contains(err.Error(), "known to be settled in "+hash(0xab)) {
		t.Errorf("resolve a settled one as not settled: %v", err)
	}
	// The clock of this machine is ten minutes ahead.
	b.exec(`CREATE SCHEMA slow; CREATE FUNCTION slow.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
		AS 'SELECT pg_catalog.clock_timestamp() - interval ''10 minutes'''`)
	b.url += "&search_path=slow,public,pg_catalog"
	early := b.enter(store.PaymentUnknown, 0, over)
	if _, err := b.run("resolve", early.id, "--not-settled", "--reason=x"); err == nil ||
		!strings.Contains(err.Error(), "can still be settled") {
		t.Errorf("resolve one that has expired by this machine's clock only: %v", err)
	}
}
