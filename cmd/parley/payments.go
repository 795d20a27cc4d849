package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// payments is the operator's view of the ledger. It works beside running servers, and shows nothing that can be spent.
type payments struct {
	List      paymentsList      `cmd:"" help:"List payments, the newest first."`
	Show      paymentsShow      `cmd:"" help:"Show one payment."`
	Export    paymentsExport    `cmd:"" help:"Write all payments that pass the filters, the oldest first, as CSV or as lines of JSON."`
	Summary   paymentsSummary   `cmd:"" help:"Add payments up by day (UTC) and operation."`
	Open      paymentsOpen      `cmd:"" help:"List payments whose story has not ended, the oldest first: settling, unknown, undeliverable."`
	Resolve   paymentsResolve   `cmd:"" help:"Say what became of a payment of unknown outcome, as seen on the chain."`
	Reconcile paymentsReconcile `cmd:"" help:"Compare the ledger with the chain. Ends with status 1 if they contradict each other."`
}

// ledger is where the payments are.
type ledger struct {
	DatabaseURL string `env:"PARLEY_DATABASE_URL" placeholder:"URL" help:"The server's PostgreSQL database, as a postgres:// URL."`
}

func (l ledger) open(ctx context.Context) (*store.Store, error) {
	if l.DatabaseURL == "" {
		return nil, errors.New("cannot read payments without --database-url (PARLEY_DATABASE_URL), the server's PostgreSQL database")
	}
	database, err := store.Open(ctx, l.DatabaseURL)
	if err != nil {
		return nil, err
	}
	pending, err := database.PendingMigrations(ctx)
	if err == nil && pending {
		err = errors.New("the database's schema is older than this program: run parley migrate first")
	}
	if err != nil {
		database.Close()
		return nil, err
	}
	return database, nil
}

// filters choose payments; all that are given must hold.
type filters struct {
	State     []paymentState `placeholder:"STATE" help:"settling, unknown, delivered, failed or undeliverable; several with commas."`
	Operation string         `placeholder:"NAME" help:"The operation paid for, as in the contract: sendPrivateMessage."`
	Payer     string         `placeholder:"0x…" help:"The address that pays."`
	Agent     *uuid.UUID     `placeholder:"UUID" help:"The agent that calls, as in the output."`
	Since     moment         `placeholder:"TIME" help:"Begun at this time or later: 2026-11-01 (UTC) or 2026-11-01T08:30:00Z."`
	Until     moment         `placeholder:"TIME" help:"Begun before this time."`
}

func (f filters) filter() store.PaymentFilter {
	filter := store.PaymentFilter{Operation: f.Operation, Payer: strings.ToLower(f.Payer), AgentID: f.Agent, Since: f.Since.Time, Until: f.Until.Time}
	for _, state := range f.State {
		filter.States = append(filter.States, string(state))
	}
	return filter
}

type paymentState string

var paymentStates = []string{store.PaymentSettling, store.PaymentUnknown, store.PaymentDelivered, store.PaymentFailed,
	store.PaymentUndeliverable}

// UnmarshalText refuses a misspelt state: it would quietly match nothing.
func (s *paymentState) UnmarshalText(text []byte) error {
	if !slices.Contains(paymentStates, string(text)) {
		return fmt.Errorf("%q is none of %s", text, strings.Join(paymentStates, ", "))
	}
	*s = paymentState(text)
	return nil
}

// moment is a time, or the beginning of a day in UTC.
type moment struct{ time.Time }

// UnmarshalText reads both.
func (m *moment) UnmarshalText(text []byte) (err error) {
	if m.Time, err = time.Parse(time.DateOnly, string(text)); err == nil {
		return nil
	}
	if m.Time, err = time.Parse(time.RFC3339, string(text)); err != nil {
		return fmt.Errorf("%q is neither a day such as 2026-11-01 nor a time such as 2026-11-01T08:30:00Z", text)
	}
	return nil
}

// column is one value of a payment: a string, a number, or nil where there is none.
type column struct {
	name string
	of   func(r store.PaymentRecord) any
}

// columns are all that is shown of a payment, in this order everywhere.
var columns = []column{
	{"id", func(r store.PaymentRecord) any { return r.ID.String() }},
	{"created_at", func(r store.PaymentRecord) any { return timestamp(r.CreatedAt) }},
	{"updated_at", func(r store.PaymentRecord) any { return timestamp(r.UpdatedAt) }},
	{"state", func(r store.PaymentRecord) any { return r.State }},
	{"operation", func(r store.PaymentRecord) any { return r.Operation }},
	{"agent_id", func(r store.PaymentRecord) any {
		if r.AgentID == nil {
			return nil
		}
		return r.AgentID.String()
	}},
	{"payer", func(r store.PaymentRecord) any { return r.Payer }},
	{"pay_to", func(r store.PaymentRecord) any { return r.PayTo }},
	{"network", func(r store.PaymentRecord) any { return r.Network }},
	{"asset", func(r store.PaymentRecord) any { return r.Asset }},
	{"amount", func(r store.PaymentRecord) any { return r.Amount }},
	{"amount_usd", func(r store.PaymentRecord) any { return usd(r.Amount) }},
	{"transaction", func(r store.PaymentRecord) any { return r.Transaction }},
	{"failure_reason", func(r store.PaymentRecord) any { return r.FailureReason }},
	{"attempts", func(r store.PaymentRecord) any { return r.Attempts }},
	{"nonce", func(r store.PaymentRecord) any { return r.Nonce }},
	{"valid_before", func(r store.PaymentRecord) any { return timestamp(r.ValidBefore) }},
	{"lease_until", func(r store.PaymentRecord) any { return timestamp(r.LeaseUntil) }},
	{"x402_version", func(r store.PaymentRecord) any { return r.X402Version }},
	{"scheme", func(r store.PaymentRecord) any { return r.Scheme }},
	{"payment_identifier", func(r store.PaymentRecord) any {
		if r.PaymentIdentifier == nil {
			return nil
		}
		return *r.PaymentIdentifier
	}},
}

func timestamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// usd writes atomic units of USDC in dollars, with six digits.
func usd(amount int64) string {
	if amount < 0 {
		return "-" + x402.FormatUSD(uint64(-amount))
	}
	return x402.FormatUSD(uint64(amount))
}

// text is a column's value outside of JSON.
func text(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// printable keeps what somebody else wrote, such as a facilitator's reason, from moving the terminal's cursor.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
}

// writeJSON writes a payment as one line.
func writeJSON(to io.Writer, columns []column, record store.PaymentRecord) error {
	line := []byte{'{'}
	for i, column := range columns {
		if i > 0 {
			line = append(line, ',')
		}
		value, err := json.Marshal(column.of(record))
		if err != nil {
			return err
		}
		line = append(fmt.Appendf(line, "%q:", column.name), value...)
	}
	_, err := to.Write(append(line, '}', '\n'))
	return err
}

// table aligns what is written to it, cells between tabs, when it is flushed.
func table(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 0, 2, ' ', 0) }

type paymentsList struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Limit   int     `default:"50" help:"How many at the most; 0 for all (${default})."`
	JSON    bool    `name:"json" help:"Lines of JSON with everything instead of a table."`
}

func (p *paymentsList) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	filter := p.Filters.filter()
	filter.NewestFirst = true
	out := table(to.out)
	if !p.JSON {
		fmt.Fprintln(out, "CREATED\tSTATE\tOPERATION\tPAYER\tUSD\tID")
	}
	listed := 0
	for record, err := range database.PaymentRecords(ctx, filter) {
		if err != nil {
			return err
		}
		if p.JSON {
			if err := writeJSON(to.out, columns, record); err != nil {
				return err
			}
		} else {
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\n",
				timestamp(record.CreatedAt), record.State, record.Operation, record.Payer, usd(record.Amount), record.ID)
		}
		if listed++; listed == p.Limit {
			break
		}
	}
	return out.Flush()
}

type paymentsShow struct {
	Ledger ledger    `embed:""`
	ID     uuid.UUID `arg:"" help:"The payment's id."`
	JSON   bool      `name:"json" help:"A line of JSON."`
}

func (p *paymentsShow) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	record, err := findPayment(ctx, database, p.ID)
	if err != nil {
		return err
	}
	if p.JSON {
		return writeJSON(to.out, columns, *record)
	}
	out := table(to.out)
	for _, column := range columns {
		fmt.Fprintf(out, "%s\t%s\n", column.name, printable(text(column.of(*record))))
	}
	return out.Flush()
}

func findPayment(ctx context.Context, database *store.Store, id uuid.UUID) (*store.PaymentRecord, error) {
	record, err := database.PaymentRecord(ctx, id)
	if err == nil && record == nil {
		err = fmt.Errorf("the ledger has no payment %s", id)
	}
	return record, err
}

type paymentsExport struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	Format  string  `enum:"csv,json" default:"csv" help:"csv, with a line of names first, or json, one object on each line (${default})."`
}

func (p *paymentsExport) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	write := func(record store.PaymentRecord) error { return writeJSON(to.out, columns, record) }
	out := csv.NewWriter(to.out)
	if p.Format == "csv" {
		var names []string
		for _, column := range columns {
			names = append(names, column.name)
		}
		if err := out.Write(names); err != nil {
			return err
		}
		write = func(record store.PaymentRecord) error {
			var cells []string
			for _, column := range columns {
				cells = append(cells, cell(column.of(record)))
			}
			return out.Write(cells)
		}
	}
	for record, err := range database.PaymentRecords(ctx, p.Filters.filter()) {
		if err != nil {
			return err
		}
		if err := write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell is a value for a spreadsheet, which would run a text that begins like a formula. A facilitator's reason may.
func cell(value any) string {
	written := text(value)
	if _, isText := value.(string); isText && written != "" && strings.ContainsRune("=+-@\t\r\n", rune(written[0])) {
		return "'" + written
	}
	return written
}

type paymentsSummary struct {
	Ledger  ledger  `embed:""`
	Filters filters `embed:""`
	JSON    bool    `name:"json" help:"One JSON object instead of a table."`
}

// sums are what became of the payments of one operation and day, or of all.
type sums struct {
	Day           string `json:"day,omitempty"`
	Operation     string `json:"operation,omitempty"`
	Delivered     sum    `json:"delivered"`
	Undeliverable sum    `json:"undeliverable"`
	Refused       sum    `json:"refused"`
	Open          sum    `json:"open"`
}

type sum struct {
	Calls     int64  `json:"calls"`
	Amount    int64  `json:"amount"`
	AmountUSD string `json:"amount_usd"`
}

func (s *sum) add(other store.PaymentSum) {
	s.Calls += other.Calls
	s.Amount += other.Amount
	s.AmountUSD = usd(s.Amount)
}

func (s *sums) add(other store.PaymentSums) {
	s.Delivered.add(other.Delivered)
	s.Undeliverable.add(other.Undeliverable)
	s.Refused.add(other.Failed)
	s.Open.add(other.Open)
}

func (p *paymentsSummary) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	found, err := database.PaymentSums(ctx, p.Filters.filter())
	if err != nil {
		return err
	}
	summary := struct {
		Days  []sums `json:"days"`
		Total sums   `json:"total"`
	}{Days: []sums{}}
	summary.Total.add(store.PaymentSums{}) // writes the zeroes
	for _, one := range found {
		line := sums{Day: one.Day.UTC().Format(time.DateOnly), Operation: one.Operation}
		line.add(one)
		summary.Total.add(one)
		summary.Days = append(summary.Days, line)
	}
	if p.JSON {
		return json.NewEncoder(to.out).Encode(summary)
	}
	out := table(to.out)
	fmt.Fprintln(out, "DAY\tOPERATION\tDELIVERED\tUSD\tUNDELIVERABLE\tUSD\tREFUSED\tUSD\tOPEN\tUSD")
	total := summary.Total
	total.Day = "total"
	for _, line := range append(summary.Days, total) {
		fmt.Fprintf(out, "%s\t%s", line.Day, line.Operation)
		for _, one := range []sum{line.Delivered, line.Undeliverable, line.Refused, line.Open} {
			fmt.Fprintf(out, "\t%d\t%s", one.Calls, one.AmountUSD)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

type paymentsOpen struct {
	Ledger ledger `embed:""`
	JSON   bool   `name:"json" help:"Lines of JSON with everything instead of a table."`
}

// openStates are those in which a payment waits for something.
var openStates = []string{store.PaymentSettling, store.PaymentUnknown, store.PaymentUndeliverable}

func (p *paymentsOpen) Run(ctx context.Context, to console) error {
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	now := time.Now()
	age := func(r store.PaymentRecord) time.Duration { return now.Sub(r.CreatedAt).Truncate(time.Second) }
	withAge := append(slices.Clone(columns), column{"age_s", func(r store.PaymentRecord) any { return int64(age(r).Seconds()) }})
	out := table(to.out)
	if !p.JSON {
		fmt.Fprintln(out, "AGE\tSTATE\tATTEMPTS\tOPERATION\tUSD\tID\tREASON")
	}
	for record, err := range database.PaymentRecords(ctx, store.PaymentFilter{States: openStates}) {
		if err != nil {
			return err
		}
		if p.JSON {
			if err := writeJSON(to.out, withAge, record); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n",
			age(record), record.State, record.Attempts, record.Operation, usd(record.Amount), record.ID, printable(record.FailureReason))
	}
	return out.Flush()
}

type paymentsResolve struct {
	Ledger     ledger    `embed:""`
	ID         uuid.UUID `arg:"" help:"The payment's id."`
	Settled    string    `xor:"outcome" required:"" placeholder:"0x…" help:"The money came, in this transaction: the server delivers what was paid for, if it has not yet."`
	NotSettled bool      `xor:"outcome" required:"" help:"The money did not come, and the payment's time is over: it has failed."`
}

var transactionHash = regexp.MustCompile(`^0x[0-9a-fA-F]{64}$`)

// notSettled is what the payer is told, as a reason like the facilitator's.
const notSettled = "not_settled"

func (p *paymentsResolve) Run(ctx context.Context, to console) error {
	if p.Settled != "" && !transactionHash.MatchString(p.Settled) {
		return errors.New("--settled takes the hash of a transaction, 0x and 64 hex digits")
	}
	database, err := p.Ledger.open(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	record, err := findPayment(ctx, database, p.ID)
	if err != nil {
		return err
	}
	done := "closed as not settled"
	if p.NotSettled {
		// Until then somebody who has the payment could still settle it, after it was called failed.
		if time.Now().Before(record.ValidBefore) {
			return fmt.Errorf("the payment can still be settled until %s: ask again after that", timestamp(record.ValidBefore))
		}
		err = database.ResolveFailed(ctx, p.ID, notSettled)
	} else {
		done = "the server closes it as soon as it looks again"
		err = database.ResolveSettled(ctx, p.ID, strings.ToLower(p.Settled))
	}
	if errors.Is(err, store.ErrPaymentMoved) {
		if record, err = findPayment(ctx, database, p.ID); err != nil {
			return err
		}
		return fmt.Errorf("the payment is %s%s; only one that is unknown can be resolved", record.State, known(record))
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "payment %s: %s\n", p.ID, done)
	return err
}

// known tells why an open payment cannot be resolved.
func known(record *store.PaymentRecord) string {
	switch {
	case !slices.Contains(openStates, record.State):
		return ""
	case record.Transaction != "":
		return " and known to be settled in " + record.Transaction
	}
	return " and a server is at it"
}
