//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/store"
)

// keptFor is how long messages stay in the measurement. The seeded ones are up to 400 days old, most of them older than this.
const keptFor = 100 * 24 * time.Hour

// retention compares calls alone with calls beside the removal of old messages, as a server does it, and measures what the removal costs.
func (d *dataset) retention(ctx context.Context) error {
	server, err := d.serve(ctx, d.withChannels())
	if err != nil {
		return err
	}
	database, err := store.Open(ctx, d.url(), store.Serving)
	if err != nil {
		return err
	}
	defer database.Close()
	if err := database.ReadClock(ctx); err != nil {
		return err
	}
	if err := d.removeAlone(ctx, database); err != nil {
		return err
	}
	var removed retention.Report
	for _, name := range []string{sendMany, sendOne, newest, nothingNew, behindUnread, wordSearch} {
		calls := d.calls(ctx, "alone", d.named(name), server)
		beside := side{"while messages are removed", func(clients int) (seen result, err error) {
			report, err := removing(ctx, database, func() (err error) {
				seen, err = calls.measure(clients)
				return err
			})
			removed.Messages += report.Messages
			removed.Took += report.Took
			return seen, err
		}}
		if err := d.compare("Retention", name, []int{16}, 2*d.rounds, calls, beside); err != nil {
			return err
		}
	}
	d.fact("Beside the calls %.0f old messages were removed per second.", float64(removed.Messages)/removed.Took.Seconds())
	return nil
}

// removing removes old messages while run runs.
func removing(ctx context.Context, database *store.Store, run func() error) (report retention.Report, err error) {
	sweeping, stop := context.WithCancel(ctx)
	var sweep errgroup.Group
	sweep.Go(func() (err error) {
		report, err = retention.Sweep(sweeping, database, store.Retention{Messages: keptFor}, false, nil)
		return err
	})
	err = run()
	stop()
	if ended := sweep.Wait(); !errors.Is(ended, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("the removal of old messages ended early: %w", cmp.Or(ended, errors.New("nothing is left"))))
	}
	return report, err
}

// removeAlone removes old messages while nothing else happens.
func (d *dataset) removeAlone(ctx context.Context, database *store.Store) error {
	before, err := d.usage(ctx, nil)
	if err != nil {
		return err
	}
	report, err := removing(ctx, database, func() error { time.Sleep(30 * time.Second); return nil })
	if err != nil {
		return err
	}
	after, err := d.usage(ctx, nil)
	removed := float64(report.Messages)
	d.fact("Without calls, %.0f old messages are removed per second, each with %.0f bytes of write-ahead log and %s ms of a processor.",
		removed/report.Took.Seconds(), (after[wal]-before[wal])/removed, digits((after[pgCPU]-before[pgCPU])/removed))
	return err
}
