package agent

import (
	"testing"
	"time"
)

// TestFreeFetches: a fetch that costs nothing needs no budget.
func TestFreeFetches(t *testing.T) {
	t.Parallel()
	f := following{MaxWait: time.Minute}
	for price, budget := range map[uint64]uint64{0: 100_000, 1000: 100_000} {
		if policy, err := f.within(budget, price); err != nil || policy.PerDay != 100 || policy.Longest != time.Minute {
			t.Errorf("fetching for %d: %+v, %v", price, policy, err)
		}
	}
	if _, err := f.within(500, 1000); err == nil {
		t.Error("a budget below one fetch is accepted")
	}
}
