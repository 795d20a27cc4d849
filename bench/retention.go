//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/parley-chat/parley/retention"
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

// retention compares calls alone with calls beside the removal of old messages, as a server does it.
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
	for _, name := range []string{sendMany, sendOne, newest, nothingNew} {
		calls := d.calls(ctx, "alone", d.named(name), server)
		beside := side{"while messages are removed", func(clients int) (result, error) {
			s.paused.Unlock()
			defer s.paused.Lock()
			return calls.measure(clients)
		}}
		seen, err := d.compare("Retention", name, []int{16}, 2*d.rounds, calls, beside)
		if err != nil {
			return errors.Join(err, finish(stop, s, ended))
		}
		d.goal(name+", p99 while messages are removed", seen[16][1][p99]/seen[16][0][p99], atMost, 1.5)
	}
	d.facts = append(d.facts, fmt.Sprintf("Beside the calls %.0f old messages were removed per second.", float64(s.removed)/s.running.Seconds()))
	return finish(stop, s, ended)
}

// finish ends the sweep. It returns an error if it had ended before.
func finish(stop func(), s *sweeper, ended <-chan error) error {
	stop()
	s.paused.Unlock()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the removal of old messages ended early: %w", err)
	}
	return nil
}
