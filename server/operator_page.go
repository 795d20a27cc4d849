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
	// Checks and figures of the operator's page that are older are read again when somebody looks.
	checksFor  = 2 * time.Second
	figuresFor = 15 * time.Second

	oldBlock = 2 * time.Minute // an endpoint whose newest block is older is behind: Base has a block every two seconds
	longOpen = 5 * time.Minute // an open payment that is older needs somebody; the alert on it has the same age
)

// figures are what the operator's page shows of other parts: the database, the facilitator and the blockchain. One reading at a time
// runs, however many requests there are, and uses one connection to the database.
type figures struct {
	mu      sync.Mutex
	reading chan struct{} // closed when the reading is done; nil if none runs
	checked time.Time     // when the last reading began
	counted time.Time     // when the figures of the database were read last; zero if that failed
	known   operator.Page
	revenue map[time.Time]partSums // by the begin of the part; only the running reading uses it
}

type partSums struct {
	sums  []store.PaymentSums
	until time.Time // until then they are good
}

// operatorPage returns the operator's page.
func (s *Server) operatorPage(w http.ResponseWriter, r *http.Request) {
	page := s.knownFigures(r.Context())
	page.Now = s.store.Now()
	page.Checks = append(slices.Clone(page.Checks), s.runChecks(r.Context(), ledgerChecks, &page)...)
	page.Calls, page.Refusals, page.Service = s.history.Calls(time.Now()), s.refusals.latest(), s.service
	if r.URL.Query().Get("refresh") == "30" {
		page.Refresh = 30
	}
	header := w.Header()
	header.Set("Content-Security-Policy", operator.Policy)
	header.Set("X-Frame-Options", "DENY")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
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
	defer f.mu.Unlock()
	if f.reading == nil && time.Since(f.checked) >= checksFor {
		f.reading, f.checked = make(chan struct{}), time.Now()
		go s.readFigures(context.WithoutCancel(ctx), f.known, time.Since(f.counted) >= figuresFor)
	}
	if reading := f.reading; reading != nil {
		f.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		case <-time.After(s.config.CheckTime * 3 / 2):
		}
		f.mu.Lock()
	}
	known := f.known
	if len(known.Checks) == 0 { // the first reading has not ended yet
		known.Checks = []operator.Check{partChecks[0].result(noResponse, false)}
	}
	return known
}

// readFigures reads the checks, and all figures if they are old. What fails keeps its last known value.
func (s *Server) readFigures(ctx context.Context, page operator.Page, old bool) {
	f := &s.figures
	counted := time.Now()
	page.Checks = s.runChecks(ctx, partChecks, &page)
	if page.Checks[0].Level == operator.Bad {
		unavailable, cancel := context.WithCancel(ctx)
		cancel()
		ctx, old, counted = unavailable, true, time.Time{} // read again as soon as it responds
	}
	if old {
		f.mu.Lock()
		f.known = page // the checks are shown before the figures, which take longer
		f.mu.Unlock()
		s.readLedger(ctx, &page)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = page
	if old {
		f.counted = counted
	}
	close(f.reading)
	f.reading = nil
}

// check looks at a part that the server needs, or at figures. Level and remedy apply if look finds a problem. Without a text there is
// nothing to show.
type check struct {
	part, runbook, level, remedy string
	look                         func(s *Server, ctx context.Context, page *operator.Page) (text string, ok bool)
}

func (c check) result(text string, ok bool) operator.Check {
	if ok {
		return operator.Check{Part: c.part, Level: operator.OK, Text: text, Runbook: c.runbook}
	}
	return operator.Check{Part: c.part, Level: c.level, Text: text, Remedy: c.remedy, Runbook: c.runbook}
}

const noResponse = "it does not respond"

// partChecks look at the parts, the database first.
var partChecks = []check{
	{"Database", "parleydatabasedown", operator.Bad,
		"Paid calls return 503 until it does; no payment is lost. Check PostgreSQL, its host and the network between.", (*Server).checkDatabase},
	{"Facilitator", "parleyfacilitatordown", operator.Bad, "Payments of scheme exact and deposits return 503; vouchers are still accepted. " +
		"Check the facilitator, or use another one (--facilitator-url).",
		func(s *Server, ctx context.Context, _ *operator.Page) (string, bool) {
			if !s.payments.Ready() || s.payments.Probe(ctx) != nil {
				return noResponse, false
			}
			return "responds", true
		}},
	{"Blockchain", "parleyblockchainunavailable", operator.Warn, "New wallets cannot pay and open payments stay open until it works. " +
		"Check the endpoint, or use another one (--rpc-url).", (*Server).checkBlockchain},
	{"Clock", "parleyclockdifference", operator.Warn, "The server uses the database's clock. Check NTP on both machines.",
		func(s *Server, _ context.Context, _ *operator.Page) (string, bool) {
			difference := s.store.ClockDifference().Abs()
			return fmt.Sprintf("%d ms from the database's", difference.Milliseconds()), difference <= maxClockDifference
		}},
	{"Server", "start-stop-and-an-unavailable-database", operator.Warn, "Load balancers send calls to other servers.",
		func(s *Server, _ context.Context, _ *operator.Page) (string, bool) {
			if !s.draining.Load() {
				return "", true
			}
			return "it stops: /readyz returns 503", false
		}},
}

// ledgerChecks look at figures that need somebody although every part responds.
var ledgerChecks = []check{
	{"Payments", "parleypaymentsstuck", operator.Warn,
		"Check facilitator, blockchain endpoint and database, then look at the open payments below.",
		func(_ *Server, _ context.Context, page *operator.Page) (string, bool) {
			switch oldest := page.Open.Value.Counts.Oldest; {
			case page.Open.Missing():
				return "", true
			case oldest > longOpen:
				return "one is open for " + operator.Age(oldest), false
			}
			return "none is open for long", true
		}},
	{"Claims", "parleyclaimsfail", operator.Warn, "Look for claims in the log, then run: parley payments claim --all",
		func(_ *Server, _ context.Context, page *operator.Page) (string, bool) {
			switch channels := page.Channels; {
			case channels.Missing():
				return "", true
			case channels.Value.Oldest > channels.Value.ClaimAge+time.Hour:
				return "a voucher is not claimed for " + operator.Age(channels.Value.Oldest), false
			}
			return "up to date", true
		}},
}

// runChecks runs checks at the same time.
func (s *Server) runChecks(ctx context.Context, checks []check, page *operator.Page) []operator.Check {
	ctx, cancel := context.WithTimeout(ctx, s.config.CheckTime)
	defer cancel()
	list := make([]operator.Check, len(checks))
	var checking sync.WaitGroup
	for i, check := range checks {
		checking.Go(func() { list[i] = check.result(check.look(s, ctx, page)) })
	}
	checking.Wait()
	return slices.DeleteFunc(list, func(c operator.Check) bool { return c.Text == "" })
}

func (s *Server) checkDatabase(ctx context.Context, _ *operator.Page) (string, bool) {
	if s.store.Ping(ctx) != nil {
		return noResponse, false
	}
	schema, err := s.store.AppliedSchema(ctx)
	if err != nil {
		return noResponse, false
	}
	pool := s.store.Pool()
	text := fmt.Sprintf("%d of %d connections, schema %d", pool.InUse, pool.Max, schema)
	if program := store.SchemaVersion(); schema != program {
		text += fmt.Sprintf(" (this program: %d)", program)
	}
	return text, true
}

func (s *Server) checkBlockchain(ctx context.Context, _ *operator.Page) (string, bool) {
	number, at, err := s.payments.Chain.Newest(ctx)
	switch age := s.store.Now().Sub(at); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("its endpoint did not respond within %v", s.config.CheckTime), false
	case err != nil:
		return "its endpoint does not respond", false
	case age > oldBlock:
		return fmt.Sprintf("the newest block of its endpoint is %v old", age.Truncate(time.Second)), false
	}
	return fmt.Sprintf("block %d", number), true
}
