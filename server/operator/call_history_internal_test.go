package operator

import (
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCallHistory: the figures of the last hour do not count what came before, and quantiles are those of the hour.
func TestCallHistory(t *testing.T) {
	t.Parallel()
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests"}, []string{"operation", "status"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "seconds", Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}}, []string{"operation"})
	h, err := NewCallHistory(requests, seconds)
	if err != nil {
		t.Fatal(err)
	}
	begin := h.samples[0].at
	calls := func(operation string, n, status int, took time.Duration) {
		for range n {
			requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
			seconds.WithLabelValues(operation).Observe(took.Seconds())
		}
	}
	calls("send", 100, 200, 3*time.Second)
	calls(OutsideContract, 500, 404, time.Millisecond)
	for minute := range 90 {
		if minute == 20 {
			calls("read", 90, 200, 20*time.Millisecond)
			calls("read", 4, 402, time.Millisecond)
			calls("read", 6, 503, 4*time.Second)
		}
		if err := h.sample(begin.Add(time.Duration(minute+1) * time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.samples) != 61 {
		t.Errorf("%d samples are kept, want those of an hour", len(h.samples))
	}
	later, err := h.Calls(begin.Add(90 * time.Minute))
	if err != nil || later.Span != recentCalls || later.Total.Recent.All() != 0 || later.Total.Started.All() != 700 {
		t.Errorf("after 90 minutes: %+v (%v), want no call in the last hour and 700 in all", later, err)
	}

	h.samples = h.samples[:0]
	if err := h.sample(begin); err != nil {
		t.Fatal(err)
	}
	calls("read", 90, 200, 20*time.Millisecond)
	calls("read", 10, 503, 4*time.Second)
	shown, err := h.Calls(begin.Add(time.Minute))
	if err != nil || len(shown.Rows) != 3 || shown.Rows[0].Name != "read" || shown.Rows[2].Name != OutsideContract || shown.Span != time.Minute {
		t.Fatalf("the rows are %+v (%v), want the busiest first and what is not in the contract last", shown, err)
	}
	read := shown.Rows[0]
	if want := (Outcomes{Answered: 90, Failed: 10}); read.Recent != want || read.Started != (Outcomes{Answered: 180, Priced: 4, Failed: 16}) {
		t.Errorf("the calls are %+v, want %+v in the last minute", read, want)
	}
	if read.Median < 10*time.Millisecond || read.Median > 25*time.Millisecond || read.P95 < 2500*time.Millisecond || read.P95 > 5*time.Second {
		t.Errorf("the median is %v and 95 %% end within %v, want the buckets of 20 ms and of 4 s", read.Median, read.P95)
	}
}
