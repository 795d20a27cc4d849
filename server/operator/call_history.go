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
	Outcomes

	bounds []float64 // of the histogram's buckets, in seconds; the last is infinite
	within []int64   // calls by bound, cumulative
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
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			counts := calls[labels["operation"]]
			if histogram := metric.GetHistogram(); histogram != nil {
				for _, bucket := range histogram.GetBucket() {
					counts.bounds = append(counts.bounds, bucket.GetUpperBound())
					counts.within = append(counts.within, int64(bucket.GetCumulativeCount())) //nolint:gosec // a number of calls
				}
				counts.bounds = append(counts.bounds, math.Inf(1))
				counts.within = append(counts.within, int64(histogram.GetSampleCount())) //nolint:gosec // a number of calls
			} else {
				*counts.outcome(labels["status"]) += int64(metric.GetCounter().GetValue())
			}
			calls[labels["operation"]] = counts
		}
	}
	return calls, nil
}

// outcome is the count of calls with an HTTP status, as text.
func (o *Outcomes) outcome(status string) *int64 {
	switch {
	case status == "402":
		return &o.Priced
	case status[0] == '4':
		return &o.Refused
	case status[0] == '5':
		return &o.Failed
	}
	return &o.Answered
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
	var all, allRecent callCounts
	for name, started := range current {
		if started.All() == 0 {
			continue
		}
		recent := started.plus(-1, before.calls[name])
		shown.Rows = append(shown.Rows, operationOf(name, started, recent))
		all, allRecent = all.plus(1, started), allRecent.plus(1, recent)
	}
	shown.Total = operationOf("All", all, allRecent)
	slices.SortFunc(shown.Rows, func(a, b Operation) int {
		switch OutsideContract { // the last
		case a.Name:
			return 1
		case b.Name:
			return -1
		}
		return cmp.Or(cmp.Compare(b.Recent.All(), a.Recent.All()), cmp.Compare(b.Started.All(), a.Started.All()), strings.Compare(a.Name, b.Name))
	})
	return shown, nil
}

// plus adds other counts so many times.
func (c callCounts) plus(times int64, other callCounts) callCounts {
	c.Answered += times * other.Answered
	c.Priced += times * other.Priced
	c.Refused += times * other.Refused
	c.Failed += times * other.Failed
	if c.bounds == nil {
		c.bounds = other.bounds
	}
	within := make([]int64, len(c.bounds))
	copy(within, c.within)
	for i, calls := range other.within {
		within[i] += times * calls
	}
	c.within = within
	return c
}

func operationOf(name string, started, recent callCounts) Operation {
	return Operation{Name: name, Started: started.Outcomes, Recent: recent.Outcomes, Median: recent.quantile(0.5), P95: recent.quantile(0.95)}
}

// quantile estimates a quantile of the durations, as Prometheus does: within a bucket they are spread evenly. Above the last bucket it
// is that bucket's bound.
func (c callCounts) quantile(part float64) time.Duration {
	last := len(c.within) - 1
	if last < 0 || c.within[last] == 0 {
		return 0
	}
	rank := part * float64(c.within[last])
	seconds, below := 0.0, 0.0
	for i, calls := range c.within[:last] {
		here := float64(calls)
		if here >= rank {
			seconds += (c.bounds[i] - seconds) * (rank - below) / max(here-below, 1)
			break
		}
		seconds, below = c.bounds[i], here
	}
	return time.Duration(seconds * float64(time.Second))
}
