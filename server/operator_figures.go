package server

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/server/operator"
	"github.com/parley-chat/parley/store"
)

const (
	// The most rows of its tables.
	shownPayments = 20
	shownAgents   = 8
	shownTables   = 6

	revenueDays = 14 // shown, today included
	// revenuePart is the time whose payments one query sums up. Parts that are over are not read again and again, and a busy day takes
	// several short queries instead of one that is too long.
	revenuePart = time.Hour
	// A part whose end is longer ago than settlingFor is good for pastFor: then only late outcomes change it.
	settlingFor = 10 * time.Minute
	pastFor     = time.Hour
)

// readLedger reads the figures of the database one after another, so that the page never uses more than one connection.
func (s *Server) readLedger(ctx context.Context, page *operator.Page) {
	readFigure(ctx, s, &page.Open, func(ctx context.Context) (open operator.Open, err error) {
		counts, err := s.store.CountOpenPayments(ctx)
		if err == nil {
			open.Counts = *counts
			open.Oldest, err = s.store.OldestOpenPayments(ctx, shownPayments)
		}
		return open, err
	})
	if s.service.Channels {
		readFigure(ctx, s, &page.Channels, s.readChannels)
	}
	readFigure(ctx, s, &page.Agents, func(ctx context.Context) (agents operator.Agents, err error) {
		if agents.Newest, err = s.store.NewestAgents(ctx, shownAgents); err == nil {
			agents.Totals, err = s.counts(ctx)
		}
		return agents, err
	})
	readFigure(ctx, s, &page.Storage, func(ctx context.Context) (*store.Storage, error) { return s.store.Storage(ctx, shownTables) })
	readFigure(ctx, s, &page.Revenue, s.readRevenue)
}

// readFigure replaces a figure, or says why it is old. If ctx has ended, the database is unavailable and nothing is asked.
func readFigure[T any](ctx context.Context, s *Server, figure *operator.Known[T], read func(context.Context) (T, error)) {
	limited, cancel := context.WithTimeout(ctx, 2*s.config.CheckTime)
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
		s.log.WarnContext(ctx, "read a figure of the operator's page", "error", err)
	}
}

func (s *Server) readChannels(ctx context.Context) (read operator.Channels, err error) {
	read.ClaimAge, read.ClaimSum = s.config.Channels.ClaimAge, int64(s.config.Channels.ClaimSum) //nolint:gosec // a sum of money
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

// readRevenue sums up the payments of the last days that are not summed up yet, the newest first, until the time is over. The next
// reading goes on.
func (s *Server) readRevenue(ctx context.Context) (operator.Revenue, error) {
	now := s.store.Now().UTC()
	first := now.Truncate(24*time.Hour).AddDate(0, 0, 1-revenueDays)
	known := s.figures.revenue
	maps.DeleteFunc(known, func(part time.Time, _ partSums) bool { return part.Before(first) })
	var failed error
	for part := now.Truncate(revenuePart); !part.Before(first); part = part.Add(-revenuePart) {
		if now.Before(known[part].until) {
			continue
		}
		sums, err := s.store.PaymentSums(ctx, store.PaymentFilter{Since: part, Until: part.Add(revenuePart)})
		if err != nil {
			failed = err
			break
		}
		rest := figuresFor
		if now.Sub(part.Add(revenuePart)) > settlingFor {
			rest = pastFor
		}
		known[part] = partSums{sums, now.Add(rest)}
	}
	if len(known) > 0 && ctx.Err() != nil {
		failed = nil // the time is over: what is summed up is shown, the rest follows
	}
	return revenueOf(first, now, known), failed
}

// revenueOf arranges the sums for the page.
func revenueOf(first, now time.Time, known map[time.Time]partSums) (revenue operator.Revenue) {
	byOperation := map[string]*operator.OperationRevenue{}
	for i := range revenueDays {
		day := operator.Day{Date: first.AddDate(0, 0, i), Counted: true}
		for part := day.Date; part.Before(day.Date.AddDate(0, 0, 1)) && !part.After(now); part = part.Add(revenuePart) {
			sums, ok := known[part]
			day.Counted = day.Counted && ok
			for _, sum := range sums.sums {
				if sum.Delivered.Calls == 0 {
					continue
				}
				if byOperation[sum.Operation] == nil {
					byOperation[sum.Operation] = &operator.OperationRevenue{Name: sum.Operation}
				}
				for _, total := range []*store.PaymentSum{&day.PaymentSum, &byOperation[sum.Operation].PaymentSum, &revenue.All} {
					total.Calls += sum.Delivered.Calls
					total.Amount += sum.Delivered.Amount
				}
			}
		}
		if !day.Counted {
			revenue.Uncounted++
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

// refusals counts the error responses of this server by code, for the operator's page. The codes of the contract bound its size.
type refusals struct {
	mu     sync.Mutex
	byCode map[gen.ErrorCode]operator.Refusal
}

// add counts a response. A question for the price is no refusal.
func (r *refusals) add(code gen.ErrorCode, operation string, at time.Time) {
	if code == "" || code == gen.ErrorCodePaymentRequired {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byCode[code] = operator.Refusal{Code: string(code), Operation: operation, Count: r.byCode[code].Count + 1, Last: at}
}

// latest returns all codes, the latest first.
func (r *refusals) latest() []operator.Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.byCode), func(a, b operator.Refusal) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Code, b.Code))
	})
}
