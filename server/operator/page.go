// Package operator renders the operator's page of the admin listener: one HTML document without scripts and external resources. The
// server fills a Page; this package decides how it looks. All text that comes from agents, facilitators and databases is escaped,
// shortened and freed of invisible characters here.
package operator

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
)

// Page is what the page shows. Amounts are in atomic units of the token, a millionth of a dollar.
type Page struct {
	Now     time.Time
	Refresh int // seconds until a browser reads the page again; 0: never
	Service Service
	Checks  []Check

	Calls    Calls
	Refusals []Refusal // the latest first

	Revenue  Known[Revenue]
	Open     Known[Open]
	Channels Known[Channels]
	Agents   Known[Agents]
	Storage  Known[*store.Storage]
}

// Known is a value that was read from the database. If the last reading failed, Problem says why, and Value is the last known one. At is
// when Value was read; zero if it never was.
type Known[T any] struct {
	Value   T
	At      time.Time
	Problem string
}

// Missing reports whether there is no value yet.
func (k Known[T]) Missing() bool { return k.At.IsZero() }

// Service is the program that runs.
type Service struct {
	BaseURL, Network, Payee, Version, Revision string

	Started  time.Time
	Channels bool // payment channels are offered
}

// The levels of a Check.
const (
	OK   = "ok"
	Warn = "warning"
	Bad  = "failed"
)

// Check is the state of one part. Remedy says what to do if it is not OK, and Runbook is the anchor of the section of
// docs/run.md that has more.
type Check struct{ Part, Level, Text, Remedy, Runbook string }

// Calls are the calls that this server had, by operation, the busiest first.
type Calls struct {
	Span  time.Duration // of the recent figures: an hour, or less after a start
	Rows  []Operation
	Total Operation
}

// First are the first n rows, and Rest the others.
func (c Calls) First(n int) Calls { return Calls{Span: c.Span, Rows: c.Rows[:min(n, len(c.Rows))]} }
func (c Calls) Rest(n int) Calls  { return Calls{Span: c.Span, Rows: c.Rows[min(n, len(c.Rows)):]} }

// OutsideContract is the name of no operation: requests for documents, unknown paths and unknown methods.
const OutsideContract = "none"

// Operation are the calls of one operation. Recent counts the calls of Calls.Span.
type Operation struct {
	Name            string
	Recent, Started Outcomes
	Median, P95     time.Duration // of recent calls, price inquiries included; 0 if there were none
}

// Outcomes count calls: Answered with 2xx, Priced with 402, Refused with another 4xx, Failed with 5xx.
type Outcomes struct{ Answered, Priced, Refused, Failed int64 }

// All is the sum.
func (o Outcomes) All() int64 { return o.Answered + o.Priced + o.Refused + o.Failed }

// Refusal counts the responses with one error code since the start of the server.
type Refusal struct {
	Code, Operation string // Operation of the last one
	Count           int64
	Last            time.Time
}

// Revenue are the delivered payments of the last days, the oldest day first, and by operation, the highest first.
type Revenue struct {
	Days       []Day
	Operations []OperationRevenue
	All        store.PaymentSum
	Uncounted  int // days that are not counted completely
}

// Day is the revenue of one day (UTC). Counted is false while only a part of its payments is summed up.
type Day struct {
	store.PaymentSum

	Date    time.Time
	Counted bool
}

// OperationRevenue is the revenue of one operation.
type OperationRevenue struct {
	store.PaymentSum

	Name string
}

// Open are the payments that are not closed: all by state, and the oldest of them.
type Open struct {
	Counts store.OpenCounts
	Oldest []store.PaymentRecord
}

// Channels are the payment channels by state, and what is charged and not claimed.
type Channels struct {
	States          map[string]int64
	Unclaimed, Lost int64
	Oldest          time.Duration // age of the oldest voucher that is not claimed
	ClaimAge        time.Duration // claimed at this age
	ClaimSum        int64         // or at this sum
}

// Agents are the newest agents, and what there is in all.
type Agents struct {
	Newest []store.NewAgent
	Totals store.Statistics
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	style string

	page = template.Must(template.New("page").Funcs(functions).Parse(pageHTML))

	// Policy is the Content-Security-Policy of the page: it loads nothing, runs nothing, and no other page can show it in a frame.
	Policy = func() string {
		sum := sha256.Sum256([]byte(style))
		return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	}()
)

// Render returns the page as HTML.
func Render(p *Page) ([]byte, error) {
	var out bytes.Buffer
	if err := page.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("render the operator's page: %w", err)
	}
	return out.Bytes(), nil
}

// Level is the level of the worst check.
func (p *Page) Level() string { return append(p.Problems(), Check{Level: OK})[0].Level }

// Problems are the checks that are not OK, the failed ones first.
func (p *Page) Problems() []Check {
	found := slices.DeleteFunc(slices.Clone(p.Checks), func(c Check) bool { return c.Level == OK })
	slices.SortStableFunc(found, func(a, b Check) int { return strings.Compare(a.Level, b.Level) }) // Bad is before Warn
	return found
}

// Today is the last day.
func (r Revenue) Today() Day { return r.Days[len(r.Days)-1] }

// StateCount is how many payments or payment channels have a state.
type StateCount struct {
	State string
	Count int64
}

func inOrder(counts map[string]int64, states ...string) (list []StateCount) {
	for _, state := range states {
		list = append(list, StateCount{state, counts[state]})
	}
	return list
}

// Unsettled counts the payments without a final outcome.
func (o Open) Unsettled() int64 {
	return o.Counts.ByState[store.PaymentSettling] + o.Counts.ByState[store.PaymentUnknown]
}

// States counts the payments by state.
func (o Open) States() []StateCount {
	return inOrder(o.Counts.ByState, store.PaymentSettling, store.PaymentUnknown, store.PaymentUndeliverable)
}

// List counts the payment channels by state.
func (c Channels) List() []StateCount {
	return inOrder(c.States, store.PaymentChannelOpen, store.PaymentChannelDepositing, store.PaymentChannelRefunding, "withdrawing")
}

// None reports whether there is no payment channel.
func (c Channels) None() bool {
	return !slices.ContainsFunc(c.List(), func(one StateCount) bool { return one.Count > 0 })
}
