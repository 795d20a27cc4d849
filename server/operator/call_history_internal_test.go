package operator

import (
	"testing"
	"time"
)

// TestCallHistory: the figures of the last hour do not count what came before, and quantiles are those of the hour.
func TestCallHistory(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, time.February, 27, 12, 0, 0, 0, time.UTC)
	h := NewCallHistory(begin)
	now := begin
	calls := func(operation string, n, status int, took time.Duration) {
		for range n {
			h.Add(operation, status, took, now)
		}
	}
	calls("send", 100, 200, 3*time.Second)
	calls(OutsideContract, 500, 404, time.Millisecond)
	now = begin.Add(20 * time.Minute)
	calls("read", 90, 200, 20*time.Millisecond)
	calls("read", 4, 402, time.Millisecond)
	calls("read", 6, 503, 4*time.Second)
	if shown := h.Calls(now); shown.Span != 20*time.Minute || shown.Total.Recent.All() != 700 {
		t.Errorf("after 20 minutes: %+v, want 700 calls", shown)
	}
	later := h.Calls(begin.Add(90 * time.Minute))
	if later.Span != recentCalls || later.Total.Recent.All() != 0 || later.Total.Started.All() != 700 {
		t.Errorf("after 90 minutes: %+v, want no call in the last hour and 700 in all", later)
	}

	now = begin.Add(80 * time.Minute) // the minute of those after 20 minutes
	calls("read", 90, 200, 20*time.Millisecond)
	calls("read", 10, 503, 4*time.Second)
	shown := h.Calls(now)
	if len(shown.Rows) != 3 || shown.Rows[0].Name != "read" || shown.Rows[2].Name != OutsideContract {
		t.Fatalf("the rows are %+v, want the busiest first and what is not in the contract last", shown)
	}
	read := shown.Rows[0]
	if want := (Outcomes{Answered: 90, Failed: 10}); read.Recent != want || read.Started != (Outcomes{Answered: 180, Priced: 4, Failed: 16}) {
		t.Errorf("the calls are %+v, want %+v in the last hour", read, want)
	}
	if read.Median < 10*time.Millisecond || read.Median > 25*time.Millisecond || read.P95 < 2500*time.Millisecond || read.P95 > 5*time.Second {
		t.Errorf("the median is %v and 95 %% end within %v, want the buckets of 20 ms and of 4 s", read.Median, read.P95)
	}
}
