package server

import (
	"context"
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
	calls, err := s.history.calls(time.Now())
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
