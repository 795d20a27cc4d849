package server

import (
	"testing"
	"time"
)

// TestPaidOutcomes: calls fail noticeably if more than a tenth of at least ten failed in the last minute.
func TestPaidOutcomes(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_763_650_000, 0)
	for name, test := range map[string]struct {
		paid, failed int
		want         bool
	}{
		"none": {0, 0, false}, "nine of nine": {0, 9, false}, "ten of ten": {0, 10, true}, "one of ten": {9, 1, false},
		"two of ten": {8, 2, true}, "ten of a hundred": {90, 10, false}, "eleven of a hundred": {89, 11, true}, "none of many": {1000, 0, false},
	} {
		var outcomes paidOutcomes
		for i := range test.paid + test.failed {
			outcomes.add(i < test.failed, now.Add(-time.Duration(i%60)*time.Second))
		}
		outcomes.add(false, now.Add(-time.Minute)) // late
		if got := outcomes.failing(now); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		if outcomes.failing(now.Add(time.Minute)) {
			t.Errorf("%s: it still fails a minute later", name)
		}
		for range 20 { // a second hand that has gone round
			outcomes.add(false, now.Add(2*time.Minute))
		}
		if outcomes.failing(now.Add(2 * time.Minute)) {
			t.Errorf("%s: old failures count", name)
		}
	}
}
