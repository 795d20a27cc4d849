package operator

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// sampleEvery is how often the counters of calls are kept, and recentCalls how long.
	sampleEvery = time.Minute
	recentCalls = time.Hour
)

// CallHistory keeps the counters of calls of the last hour, for the operator's page. One sample a minute of all operations takes
// less than a megabyte.
type CallHistory struct {
	counters *prometheus.Registry
	mu       sync.Mutex
	samples  []callSample // the oldest first
}

// callSample are the counters by operation at a time.
type callSample struct {
	at    time.Time
	calls map[string]callCounts
}

type callCounts struct {
	outcomes Outcomes
	buckets  []durationBucket // of the histogram, cumulative
}

type durationBucket struct {
	most  float64 // seconds
	count uint64
}

// NewCallHistory keeps the counters of calls, by operation and status, and the histograms of their durations in seconds, by operation.
func NewCallHistory(requests, seconds prometheus.Collector) (*CallHistory, error) {
	h := &CallHistory{counters: prometheus.NewRegistry()}
	for _, counter := range []prometheus.Collector{requests, seconds} {
		if err := h.counters.Register(counter); err != nil {
			return nil, fmt.Errorf("read the counters of calls: %w", err)
		}
	}
	return h, h.sample(time.Now())
}

// Keep takes samples until ctx ends.
func (h *CallHistory) Keep(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			_ = h.sample(now) // fails only for metrics that contradict each other
		}
	}
}

func (h *CallHistory) sample(now time.Time) error {
	calls, err := h.read()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples = append(h.samples, callSample{now, calls})
	if old := len(h.samples) - 1 - int(recentCalls/sampleEvery); old > 0 {
		h.samples = slices.Delete(h.samples, 0, old)
	}
	return nil
}

// read reads the counters.
func (h *CallHistory) read() (map[string]callCounts, error) {
	families, err := h.counters.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the counters of calls: %w", err)
	}
	calls := map[string]callCounts{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			name := labelOf(metric, "operation")
			counts := calls[name]
			if histogram := metric.GetHistogram(); histogram != nil {
				for _, bucket := range histogram.GetBucket() {
					counts.buckets = append(counts.buckets, durationBucket{bucket.GetUpperBound(), bucket.GetCumulativeCount()})
				}
				counts.buckets = append(counts.buckets, durationBucket{math.Inf(1), histogram.GetSampleCount()})
			} else {
				counts.outcomes.Add(labelOf(metric, "status"), uint64(metric.GetCounter().GetValue()))
			}
			calls[name] = counts
		}
	}
	return calls, nil
}

func labelOf(metric *dto.Metric, name string) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

// Calls compares the counters with those of an hour ago, or of the start.
func (h *CallHistory) Calls(now time.Time) (Calls, error) {
	current, err := h.read()
	if err != nil {
		return Calls{}, err
	}
	h.mu.Lock()
	before := h.samples[0]
	h.mu.Unlock()
	shown := Calls{Span: min(now.Sub(before.at), recentCalls)}
	all := callCounts{}
	allBefore := callCounts{}
	for name, counts := range current {
		if counts.outcomes.All() == 0 {
			continue
		}
		shown.Rows = append(shown.Rows, operationOf(name, counts, before.calls[name]))
		all.add(counts)
		allBefore.add(before.calls[name])
	}
	shown.Total = operationOf("All", all, allBefore)
	last := func(o Operation) int {
		if o.Name == OutsideContract {
			return 1
		}
		return 0
	}
	slices.SortFunc(shown.Rows, func(a, b Operation) int {
		return cmp.Or(last(a)-last(b), cmp.Compare(b.Recent.All(), a.Recent.All()), cmp.Compare(b.Started.All(), a.Started.All()), strings.Compare(a.Name, b.Name))
	})
	return shown, nil
}

func (c *callCounts) add(other callCounts) {
	c.outcomes = c.outcomes.Plus(other.outcomes)
	if c.buckets == nil {
		c.buckets = slices.Clone(other.buckets)
		return
	}
	for i := range other.buckets {
		c.buckets[i].count += other.buckets[i].count
	}
}

func operationOf(name string, now, before callCounts) Operation {
	return Operation{
		Name: name, Started: now.outcomes, Recent: now.outcomes.Minus(before.outcomes),
		Median: quantile(0.5, now.buckets, before.buckets), P95: quantile(0.95, now.buckets, before.buckets),
	}
}

// quantile estimates a quantile of the durations between two readings of a histogram, as Prometheus does: within a bucket they are
// spread evenly. Above the last bucket it is that bucket's bound.
func quantile(part float64, now, before []durationBucket) time.Duration {
	count := func(i int) float64 {
		if i < len(before) {
			return float64(now[i].count - before[i].count)
		}
		return float64(now[i].count)
	}
	if len(now) == 0 || count(len(now)-1) == 0 {
		return 0
	}
	rank := part * count(len(now)-1)
	low, below := 0.0, 0.0
	for i, bucket := range now {
		if here := count(i); here >= rank && !math.IsInf(bucket.most, 1) {
			seconds := low + (bucket.most-low)*(rank-below)/max(here-below, 1)
			return time.Duration(seconds * float64(time.Second))
		}
		low, below = bucket.most, count(i)
	}
	return time.Duration(low * float64(time.Second))
}
