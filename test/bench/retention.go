//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/store"
)

// keptFor is how long messages stay in the measurement. The seeded ones are up to 400 days old, most of them older than this.
const keptFor = 100 * 24 * time.Hour

// sweeper removes old messages until its context ends, except while paused is locked.
type sweeper struct {
	paused  sync.Mutex
	removed int64         // while running
	running time.Duration // so far
}

func (s *sweeper) run(ctx context.Context, database *store.Store) error {
	last := time.Now()
	_, err := retention.Sweep(ctx, database, store.Retention{Messages: keptFor}, false, func(removed store.Removed) {
		s.removed += removed.Messages
		s.running += time.Since(last)
		s.paused.Lock()
		defer s.paused.Unlock()
		last = time.Now()
	})
	return err
}

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
	s := &sweeper{}
	s.paused.Lock()
	sweeping, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.run(sweeping, database) }()
	err = errors.Join(d.removeAlone(ctx, s), d.compareRemoval(ctx, s, server))
	stop()
	s.paused.Unlock()
	if early := <-ended; !errors.Is(early, context.Canceled) {
		err = errors.Join(err, fmt.Errorf("the removal of old messages ended early: %w", cmp.Or(early, errors.New("nothing is left"))))
	}
	return err
}

// removeAlone removes old messages while nothing else happens.
func (d *dataset) removeAlone(ctx context.Context, s *sweeper) error {
	const lasting = 30 * time.Second
	before, err := d.usage(ctx, nil)
	if err != nil {
		return err
	}
	s.paused.Unlock()
	time.Sleep(lasting)
	s.paused.Lock()
	after, err := d.usage(ctx, nil)
	if err != nil {
		return err
	}
	removed := float64(s.removed)
	d.fact("Without calls, %.0f old messages are removed per second, each with %.0f bytes of write-ahead log and %s ms of a processor.",
		removed/lasting.Seconds(), (after[wal]-before[wal])/removed, digits((after[pgCPU]-before[pgCPU])/removed))
	s.removed, s.running = 0, 0
	return nil
}

// compareRemoval measures calls alone and beside the removal.
func (d *dataset) compareRemoval(ctx context.Context, s *sweeper, server *process) error {
	for _, name := range []string{sendMany, sendOne, newest, nothingNew, behindUnread, wordSearch} {
		calls := d.calls(ctx, "alone", d.named(name), server)
		beside := side{"while messages are removed", func(clients int) (result, error) {
			s.paused.Unlock()
			defer s.paused.Lock()
			return calls.measure(clients)
		}}
		seen, err := d.compare("Retention", name, []int{16}, 2*d.rounds, calls, beside)
		if err != nil {
			return err
		}
		d.goal(name+", p99 while messages are removed", seen[16][1][p99]/seen[16][0][p99], atMost, 1.5)
	}
	d.fact("Beside the calls %.0f old messages were removed per second.", float64(s.removed)/s.running.Seconds())
	return nil
}
