package operator

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// recentCalls is how long calls are recent. Their counts by minute take less than a megabyte.
const recentCalls = time.Hour

// CallHistory counts calls by operation, since the start and in each minute of the last hour, for the operator's page.
type CallHistory struct {
	started time.Time
	mu      sync.Mutex
	all     minute
	recent  [recentCalls / time.Minute]minute
}

type minute struct {
	number int64 // since 1970
	calls  map[string]*callCounts
}

type callCounts struct {
	Outcomes

	durations [len(bounds) + 1]int64 // calls that took at most so long, and longer ones
}

var bounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
	2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, 90 * time.Second}

// NewCallHistory counts calls from now on.
func NewCallHistory(now time.Time) *CallHistory {
	return &CallHistory{started: now, all: minute{calls: map[string]*callCounts{}}}
}

// Add counts a call with its HTTP status.
func (h *CallHistory) Add(operation string, status int, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number := now.Unix() / 60
	current := &h.recent[number%int64(len(h.recent))]
	if current.number != number {
		*current = minute{number, map[string]*callCounts{}}
	}
	h.all.of(operation).add(status, took)
	current.of(operation).add(status, took)
}

func (m *minute) of(operation string) *callCounts {
	if m.calls[operation] == nil {
		m.calls[operation] = &callCounts{}
	}
	return m.calls[operation]
}

func (c *callCounts) add(status int, took time.Duration) {
	switch {
	case status == 402:
		c.Priced++
	case status >= 500:
		c.Failed++
	case status >= 400:
		c.Refused++
	default:
		c.Answered++
	}
	i, _ := slices.BinarySearch(bounds[:], took)
	c.durations[i]++
}

func (c *callCounts) plus(other *callCounts) {
	c.Answered += other.Answered
	c.Priced += other.Priced
	c.Refused += other.Refused
	c.Failed += other.Failed
	for i, calls := range other.durations {
		c.durations[i] += calls
	}
}

// Calls returns the counts by operation.
func (h *CallHistory) Calls(now time.Time) Calls {
	h.mu.Lock()
	defer h.mu.Unlock()
	shown := Calls{Span: min(now.Sub(h.started), recentCalls)}
	var all, allRecent callCounts
	for name, started := range h.all.calls {
		var recent callCounts
		for _, minute := range h.recent {
			if counts := minute.calls[name]; counts != nil && minute.number > now.Add(-recentCalls).Unix()/60 {
				recent.plus(counts)
			}
		}
		shown.Rows = append(shown.Rows, operationOf(name, started, &recent))
		all.plus(started)
		allRecent.plus(&recent)
	}
	shown.Total = operationOf("All", &all, &allRecent)
	slices.SortFunc(shown.Rows, func(a, b Operation) int {
		switch OutsideContract { // the last
		case a.Name:
			return 1
		case b.Name:
			return -1
		}
		return cmp.Or(cmp.Compare(b.Recent.All(), a.Recent.All()), cmp.Compare(b.Started.All(), a.Started.All()), strings.Compare(a.Name, b.Name))
	})
	return shown
}

func operationOf(name string, started, recent *callCounts) Operation {
	return Operation{Name: name, Started: started.Outcomes, Recent: recent.Outcomes, Median: recent.quantile(0.5), P95: recent.quantile(0.95)}
}

// quantile estimates a quantile of the durations, as Prometheus does: between two bounds they are spread evenly. Above the last bound it is
// that bound.
func (c *callCounts) quantile(part float64) time.Duration {
	rank, low := part*float64(c.All()), time.Duration(0)
	if rank == 0 {
		return 0
	}
	for i, bound := range bounds {
		here := float64(c.durations[i])
		if here >= rank {
			return low + time.Duration(float64(bound-low)*rank/here)
		}
		rank, low = rank-here, bound
	}
	return low
}
