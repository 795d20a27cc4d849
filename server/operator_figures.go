package server

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/server/operator"
	"github.com/parley-chat/parley/store"
)

const (
	// figureTime limits one query of the operator's page.
	figureTime = 2 * time.Second
	// The most rows of its tables.
	shownPayments = 20
	shownAgents   = 8
	shownTables   = 6
)

// readLedger reads the figures of the database one after another, so that the page never uses more than one connection.
func (s *Server) readLedger(ctx context.Context, page *operator.Page) {
	readFigure(ctx, s.log, &page.Open, func(ctx context.Context) (operator.Open, error) {
		counts, err := s.store.CountOpenPayments(ctx)
		if err != nil {
			return operator.Open{}, err
		}
		oldest, err := s.store.OldestOpenPayments(ctx, shownPayments)
		return operator.Open{Counts: *counts, Oldest: oldest}, err
	})
	if s.config.Channels.Authorizer != nil {
		channels := operator.Known[operator.Channels]{}
		if page.Channels != nil {
			channels = *page.Channels // pages that are shown have the former one
		}
		readFigure(ctx, s.log, &channels, s.readChannels)
		page.Channels = &channels
	}
	readFigure(ctx, s.log, &page.Agents, func(ctx context.Context) (operator.Agents, error) {
		newest, err := s.store.NewestAgents(ctx, shownAgents)
		if err != nil {
			return operator.Agents{}, err
		}
		totals, err := s.counts(ctx)
		return operator.Agents{Newest: newest, Totals: totals}, err
	})
	readFigure(ctx, s.log, &page.Storage, func(ctx context.Context) (store.Storage, error) {
		storage, err := s.store.Storage(ctx, shownTables)
		if err != nil {
			return store.Storage{}, err
		}
		return *storage, nil
	})
	readFigure(ctx, s.log, &page.Revenue, s.readRevenue)
}

// readFigure replaces a figure, or says why it is old. If ctx has ended, the database is unavailable and nothing is asked.
func readFigure[T any](ctx context.Context, log *slog.Logger, figure *operator.Known[T], read func(context.Context) (T, error)) {
	limited, cancel := context.WithTimeout(ctx, figureTime)
	defer cancel()
	err := ctx.Err()
	var value T
	if err == nil {
		value, err = read(limited)
	}
	switch {
	case err == nil:
		*figure = operator.Known[T]{Value: value, At: time.Now()}
	case ctx.Err() != nil:
		figure.Problem = "the database does not respond"
	default:
		figure.Problem = "the last query failed or took too long; the log has the cause"
		log.WarnContext(ctx, "read a figure of the operator's page", "error", err)
	}
}

func (s *Server) readChannels(ctx context.Context) (operator.Channels, error) {
	settings := s.config.Channels
	read := operator.Channels{ClaimAge: settings.ClaimAge, ClaimSum: int64(settings.ClaimSum)} //nolint:gosec // a sum of money
	var err error
	if read.States, err = s.store.CountPaymentChannels(ctx); err != nil {
		return read, err
	}
	sums, err := s.store.Unclaimed(ctx, s.config.Network.ID, strings.ToLower(s.config.Network.Asset))
	for _, sum := range sums {
		read.Unclaimed += sum.Sum
		read.Lost += sum.Lost
		read.Oldest = max(read.Oldest, sum.Age)
	}
	return read, err
}

const (
	// revenueDays is how many days of revenue the page shows, today included.
	revenueDays = 14
	// pastFor is how long the sums of a past day are good. A payment of that day can still be delivered later.
	pastFor = time.Hour
	// restFactor is how many times longer than it took to sum up a day the result is used, so that the page takes at most a fiftieth of one
	// connection, however many payments a day has.
	restFactor = 50
)

// revenueByDay keeps the sums of days. Only the running reading uses it.
type revenueByDay map[time.Time]daySums

type daySums struct {
	sums  []store.PaymentSums
	until time.Time // until then they are good
}

// readRevenue sums up the payments of the last days that are not summed up yet, today's first, until the time is over. The next
// reading goes on.
func (s *Server) readRevenue(ctx context.Context) (operator.Revenue, error) {
	today := s.store.Now().UTC().Truncate(24 * time.Hour)
	known := s.figures.revenue
	var failed error
	for i := range revenueDays {
		day := today.AddDate(0, 0, -i)
		began := time.Now()
		if sums, ok := known[day]; failed != nil || (ok && began.Before(sums.until)) {
			continue
		}
		sums, err := s.store.PaymentSums(ctx, store.PaymentFilter{Since: day, Until: day.AddDate(0, 0, 1)})
		if err != nil {
			failed = err
			continue
		}
		rest := max(figuresFor, restFactor*time.Since(began))
		if i > 0 {
			rest = max(rest, pastFor)
		}
		known[day] = daySums{sums, time.Now().Add(rest)}
	}
	for day := range known {
		if day.Before(today.AddDate(0, 0, -revenueDays)) {
			delete(known, day)
		}
	}
	if len(known) > 0 && ctx.Err() != nil {
		failed = nil // the time is over: what is summed up is shown, the rest follows
	}
	return revenueOf(today, known), failed
}

// revenueOf arranges the sums for the page.
func revenueOf(today time.Time, known revenueByDay) (revenue operator.Revenue) {
	byOperation := map[string]*operator.OperationRevenue{}
	for i := revenueDays - 1; i >= 0; i-- {
		day := operator.Day{Date: today.AddDate(0, 0, -i)}
		var sums daySums
		sums, day.Counted = known[day.Date]
		for _, sum := range sums.sums {
			if sum.Delivered.Calls == 0 {
				continue
			}
			day.Calls += sum.Delivered.Calls
			day.Amount += sum.Delivered.Amount
			if byOperation[sum.Operation] == nil {
				byOperation[sum.Operation] = &operator.OperationRevenue{Name: sum.Operation}
			}
			byOperation[sum.Operation].Calls += sum.Delivered.Calls
			byOperation[sum.Operation].Amount += sum.Delivered.Amount
		}
		revenue.Days = append(revenue.Days, day)
	}
	for _, one := range byOperation {
		revenue.Operations = append(revenue.Operations, *one)
	}
	slices.SortFunc(revenue.Operations, func(a, b operator.OperationRevenue) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), strings.Compare(a.Name, b.Name))
	})
	return revenue
}
