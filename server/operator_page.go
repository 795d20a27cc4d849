package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/parley-chat/parley/server/operator"
	"github.com/parley-chat/parley/store"
)

const (
	// checksFor and figuresFor are how long the checks and the figures of the operator's page are good. Older ones are read again when
	// somebody looks.
	checksFor  = 2 * time.Second
	figuresFor = 15 * time.Second
	// figuresWait is how long a request waits for them. After that the page shows the last known ones.
	figuresWait = 1500 * time.Millisecond
)

// figures are what the operator's page shows of other parts: the database, the facilitator and the blockchain. One reading at a time
// runs, however many requests there are, and uses one connection to the database.
type figures struct {
	mu      sync.Mutex
	reading chan struct{} // closed when the reading is done; nil if none runs
	checked time.Time     // when the last reading began
	counted time.Time     // when the figures of the database were read last; zero if that failed
	known   operator.Page
	revenue revenueParts
}

// operatorPage returns the operator's page.
func (s *Server) operatorPage(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", operator.Policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	page := s.knownFigures(r.Context())
	page.Now = s.store.Now()
	page.Checks = append(slices.Clone(page.Checks), ledgerChecks(&page)...)
	calls, err := s.history.Calls(time.Now())
	if err != nil {
		s.log.ErrorContext(r.Context(), "operator's page", "error", err)
		http.Error(w, "internal error; the log has the cause\n", http.StatusInternalServerError)
		return
	}
	page.Calls, page.Refusals, page.Service = calls, s.refusals.latest(), s.service
	if r.URL.Query().Get("refresh") == "30" {
		page.Refresh = 30
	}
	body, err := operator.Render(&page)
	if err != nil {
		s.log.ErrorContext(r.Context(), "operator's page", "error", err)
		http.Error(w, "internal error; the log has the cause\n", http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body)
}

// knownFigures returns the last known figures. If they are old, it starts to read them, and waits a moment for the result.
func (s *Server) knownFigures(ctx context.Context) operator.Page {
	f := &s.figures
	f.mu.Lock()
	if f.reading == nil && time.Since(f.checked) >= checksFor {
		f.reading, f.checked = make(chan struct{}), time.Now()
		go s.readFigures(context.WithoutCancel(ctx), f.known, time.Since(f.counted) >= figuresFor)
	}
	reading := f.reading
	f.mu.Unlock()
	if reading != nil {
		select {
		case <-reading:
		case <-ctx.Done():
		case <-time.After(figuresWait):
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.known
	if len(known.Checks) == 0 { // the first reading has not ended yet
		known.Checks = []operator.Check{databaseCheck(context.DeadlineExceeded, store.PoolStatistics{}, 0)}
	}
	return known
}

// readFigures reads the checks, and all figures if they are old. What fails keeps its last known value.
func (s *Server) readFigures(ctx context.Context, page operator.Page, old bool) {
	f := &s.figures
	counted := time.Now()
	publish := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.known = page
	}
	page.Checks = s.checks(ctx)
	if page.Checks[0].Level == operator.Bad {
		unavailable, cancel := context.WithCancel(ctx)
		cancel()
		ctx, old, counted = unavailable, true, time.Time{} // read again as soon as it responds
	}
	publish() // the checks are shown before the figures, which take longer
	if old {
		s.readLedger(ctx, &page)
		publish()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if old {
		f.counted = counted
	}
	close(f.reading)
	f.reading = nil
}

// checkTime is how long a check waits for its part.
const checkTime = time.Second

// oldBlock is the age of the newest block above which the endpoint of the blockchain is behind. Base has a block every two seconds.
const oldBlock = 2 * time.Minute

// longOpen is the age above which an open payment needs somebody. The alert on it has the same.
const longOpen = 5 * time.Minute

// checks looks at all parts that the server needs, at the same time.
func (s *Server) checks(ctx context.Context) []operator.Check {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list := make([]operator.Check, 3)
	var checking sync.WaitGroup
	checking.Go(func() {
		err := s.store.Ping(ctx)
		var schema int64
		if err == nil {
			schema, err = s.store.AppliedSchema(ctx)
		}
		list[0] = databaseCheck(err, s.store.Pool(), schema)
	})
	checking.Go(func() { list[1] = s.facilitatorCheck(ctx) })
	checking.Go(func() { list[2] = s.chainCheck(ctx) })
	checking.Wait()
	list = append(list, clockCheck(s.store.ClockDifference()))
	if s.draining.Load() {
		list = append(list, operator.Check{Part: "Server", Level: operator.Warn, Text: "it stops: /readyz returns 503",
			Remedy: "Load balancers send calls to other servers.", Runbook: "start-stop-and-an-unavailable-database"})
	}
	return list
}

func databaseCheck(err error, pool store.PoolStatistics, schema int64) operator.Check {
	check := operator.Check{Part: "Database", Level: operator.OK, Runbook: "parleydatabasedown"}
	if err != nil {
		check.Level, check.Text = operator.Bad, "it does not respond"
		check.Remedy = "Paid calls return 503 until it does; no payment is lost. Check PostgreSQL, its host and the network between."
		return check
	}
	check.Text = fmt.Sprintf("%d of %d connections, schema %d", pool.InUse, pool.Max, schema)
	if program := store.SchemaVersion(); schema != program {
		check.Text += fmt.Sprintf(" (this program: %d)", program)
	}
	return check
}

func (s *Server) facilitatorCheck(ctx context.Context) operator.Check {
	check := operator.Check{Part: "Facilitator", Level: operator.OK, Text: "responds", Runbook: "parleyfacilitatordown"}
	if !s.payments.Ready() || s.payments.Probe(ctx) != nil {
		check.Level, check.Text = operator.Bad, "it does not respond"
		check.Remedy = "Payments of scheme exact and deposits return 503; vouchers are still accepted. Check the facilitator, or use another one (--facilitator-url)."
	}
	return check
}

func (s *Server) chainCheck(ctx context.Context) operator.Check {
	check := operator.Check{Part: "Blockchain", Level: operator.OK, Runbook: "parleyblockchainunavailable"}
	number, at, err := s.payments.NewestBlock(ctx)
	switch age := s.store.Now().Sub(at); {
	case errors.Is(err, context.DeadlineExceeded):
		check.Text = fmt.Sprintf("its endpoint did not respond within %v", checkTime)
	case err != nil:
		check.Text = "its endpoint does not respond"
	case age > oldBlock:
		check.Text = fmt.Sprintf("the newest block of its endpoint is %v old", age.Truncate(time.Second))
	default:
		check.Text = fmt.Sprintf("block %d", number)
		return check
	}
	check.Level = operator.Warn
	check.Remedy = "New wallets cannot pay and open payments stay open until it works. Check the endpoint, or use another one (--rpc-url)."
	return check
}

func clockCheck(difference time.Duration) operator.Check {
	check := operator.Check{Part: "Clock", Level: operator.OK, Runbook: "parleyclockdifference",
		Text: fmt.Sprintf("%d ms from the database's", difference.Abs().Milliseconds())}
	if difference.Abs() > maxClockDifference {
		check.Level, check.Remedy = operator.Warn, "The server uses the database's clock. Check NTP on both machines."
	}
	return check
}

// ledgerChecks look at figures that need somebody although every part responds.
func ledgerChecks(page *operator.Page) (list []operator.Check) {
	if open := page.Open; !open.Missing() {
		check := operator.Check{Part: "Payments", Level: operator.OK, Text: "none is open for long", Runbook: "parleypaymentsstuck"}
		if oldest := open.Value.Counts.Oldest; oldest > longOpen {
			check.Level, check.Text = operator.Warn, fmt.Sprintf("one is open for %s", operator.Age(oldest))
			check.Remedy = "Check facilitator, blockchain endpoint and database, then look at the open payments below."
		}
		list = append(list, check)
	}
	if page.Channels == nil || page.Channels.Missing() {
		return list
	}
	channels := page.Channels.Value
	check := operator.Check{Part: "Claims", Level: operator.OK, Text: "up to date", Runbook: "parleyclaimsfail"}
	if channels.Oldest > channels.ClaimAge+time.Hour {
		check.Level, check.Text = operator.Warn, fmt.Sprintf("a voucher is not claimed for %s", operator.Age(channels.Oldest))
		check.Remedy = "Look for claims in the log, then run: parley payments claim --all"
	}
	return append(list, check)
}
