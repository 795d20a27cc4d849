//go:build consistency

package consistency

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// lifetime is how long a universe lasts. Its histories stay short, and so quick to check.
	lifetime = 6 * time.Second
	// together is how many universes there are at the same time.
	together = 2
	// leastOperations is how many operations a run of any length checks at least.
	leastOperations = 1000
)

// kinds are the kinds of histories, of which a run checks some of each.
var kinds = []string{"group chat", "private chat", "unread messages", "notices", "key", "payment channel"}

// TestConsistency lets clients call two servers that are killed, over connections that are lost, and checks what they saw. For each of
// CONSISTENCY_SEEDS ("1 2 3"; by default one from the clock) it takes CONSISTENCY_TIME (10m), for all of them at the same time.
func TestConsistency(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("CONSISTENCY_TIME"), "10m"))
	if err != nil {
		t.Fatalf("CONSISTENCY_TIME: %v", err)
	}
	for _, text := range strings.Fields(cmp.Or(os.Getenv("CONSISTENCY_SEEDS"), fmt.Sprint(rand.Uint32()))) {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("CONSISTENCY_SEEDS: %v", err)
		}
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			report := run(t, newWorld(t, "../../bin/parley"), seed, duration, func(*Report) bool { return false })
			t.Logf("seed %d, %s\n%s", seed, duration, report)
			for _, wrong := range report.Wrong() {
				t.Error(wrong)
			}
			if report.Operations < leastOperations {
				t.Errorf("%d operations were checked, want at least %d", report.Operations, leastOperations)
			}
			for _, kind := range kinds {
				if report.kinds[kind] == nil {
					t.Errorf("no history of the kind %s was checked", kind)
				}
			}
		})
	}
}

// run lets universes come and go for a time, while things break, or until enough was found.
func run(t testing.TB, w *world, seed uint64, duration time.Duration, enough func(*Report) bool) *Report {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	var working sync.WaitGroup
	working.Go(func() {
		chance := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Duration(2000+chance.IntN(4000)) * time.Millisecond):
			}
			if err := w.breakSomething(chance); err != nil {
				t.Error(err)
				return
			}
		}
	})
	report := &Report{}
	var mu sync.Mutex
	check := func(u *universe) {
		mu.Lock()
		defer mu.Unlock() // also if it ends the goroutine
		u.check(t, report)
		if enough(report) {
			stop()
		}
	}
	for lane := range together {
		working.Go(func() {
			for number := uint64(0); ctx.Err() == nil; number++ {
				u := newUniverse(t, w, seed<<32+number*together+uint64(lane))
				living, end := context.WithTimeout(ctx, lifetime)
				u.live(living)
				end()
				check(u)
			}
		})
	}
	working.Wait()
	return report
}
