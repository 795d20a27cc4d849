// Package retention removes what has outlived the operator's retention settings, a little at a time.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

const (
	// firstAfter is when a server removes old data for the first time, and every how often it does so after that. A sweep with
	// nothing to remove reads the rows of the conversations.
	firstAfter = time.Minute
	every      = time.Hour
	// rest is how long a sweep pauses after each statement, as a multiple of the time that the statement took. So a sweep works for a
	// fifth of the time, and removes less while the database is busy.
	rest = 4
)

// Report is what a sweep did.
type Report struct {
	store.Removed
	Looked, Busy int64     // conversations with something to remove, and those of them that were locked for too long
	Oldest       time.Time // no message that was kept is older; zero if there are none
	Took         time.Duration
}

// Sweep removes what has outlived its retention, or counts it if dryRun is true. It calls progress after each batch, unless that is nil. It
// returns store.ErrSweeping if another sweep runs. With an error, the report says what was removed before.
func Sweep(ctx context.Context, database *store.Store, policy store.Retention, dryRun bool, progress func(store.Removed)) (Report, error) {
	began := time.Now()
	pass := &pass{dryRun: dryRun, progress: progress}
	if progress == nil {
		pass.progress = func(store.Removed) {}
	}
	var err error
	if pass.sweep, err = database.BeginSweep(ctx, policy); err != nil {
		return pass.Report, err
	}
	defer pass.sweep.End(ctx)
	err = pass.run(ctx)
	pass.Took = time.Since(began)
	return pass.Report, err
}

// pass is a sweep that runs.
type pass struct {
	Report
	sweep    *store.Sweep
	dryRun   bool
	progress func(store.Removed)
}

func (p *pass) run(ctx context.Context) error {
	if err := p.payments(ctx); err != nil {
		return err
	}
	for last := new(uuid.UUID); last != nil; {
		var page *store.SweepPage
		err := p.step(ctx, func() (err error) {
			page, err = p.sweep.Page(ctx, *last)
			return err
		})
		if err != nil {
			return err
		}
		last = page.Last
		p.kept(page.Oldest)
		for i := range page.Outlived {
			p.Looked++
			one := &page.Outlived[i]
			if err := p.conversation(ctx, one); err != nil {
				return err
			}
			if !one.Erase && !p.dryRun {
				p.kept(&one.Oldest)
			}
		}
	}
	return nil
}

// payments removes old vouchers.
func (p *pass) payments(ctx context.Context) error {
	for page := new(store.PaymentPage); page != nil; {
		err := p.step(ctx, func() (err error) {
			page, err = p.sweep.Payments(ctx, *page, p.dryRun)
			return err
		})
		if err != nil {
			return err
		}
		if page != nil {
			removed := store.Removed{Payments: page.Gone}
			p.Add(removed)
			p.progress(removed)
		}
	}
	return nil
}

// conversation removes what is too old in one conversation.
func (p *pass) conversation(ctx context.Context, of *store.Outlived) error {
	for more := true; more; {
		var removed store.Removed
		err := p.step(ctx, func() (err error) {
			if p.dryRun {
				removed, err = p.sweep.Count(ctx, *of)
				more = false
			} else {
				removed, more, err = p.sweep.Remove(ctx, of)
			}
			return err
		})
		p.Add(removed)
		p.progress(removed)
		if errors.Is(err, store.ErrConversationBusy) { // the next sweep tries again
			p.Busy++
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// kept notes the time of messages that were kept.
func (p *pass) kept(oldest *time.Time) {
	if oldest != nil && (p.Oldest.IsZero() || oldest.Before(p.Oldest)) {
		p.Oldest = *oldest
	}
}

// step does some work, and pauses.
func (p *pass) step(ctx context.Context, work func() error) error {
	began := time.Now()
	if err := work(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rest * time.Since(began)):
		return nil
	}
}

// Worker sweeps from time to time. Any number of servers may run one on a database: one at a time sweeps.
type Worker struct {
	database *store.Store
	policy   store.Retention
	log      *slog.Logger
	metrics  *metrics
}

// New returns a worker. It does nothing if the policy keeps everything.
func New(database *store.Store, policy store.Retention, log *slog.Logger) *Worker {
	return &Worker{database: database, policy: policy, log: log, metrics: newMetrics()}
}

// Run sweeps until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	if w.policy == (store.Retention{}) {
		return
	}
	for next := firstAfter; ; next = every {
		select {
		case <-ctx.Done():
			return
		case <-time.After(next):
			w.sweep(ctx)
		}
	}
}

func (w *Worker) sweep(ctx context.Context) {
	report, err := Sweep(ctx, w.database, w.policy, false, w.metrics.add)
	switch {
	case errors.Is(err, store.ErrSweeping), ctx.Err() != nil:
		return
	case err != nil:
		w.log.WarnContext(ctx, "old data was not removed", "error", err)
		return
	}
	w.metrics.done(report)
	w.log.InfoContext(ctx, "old data removed", "messages", report.Messages, "reactions", report.Reactions, "memberships", report.Memberships,
		"conversations", report.Conversations, "payments", report.Payments, "busy", report.Busy, "seconds", report.Took.Seconds())
}
