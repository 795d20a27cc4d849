package server

import (
	"sync"
	"time"
)

const (
	outcomesFor   = 60 // seconds
	fewOutcomes   = 10 // paid calls; fewer say too little
	oneFailedInOf = 10 // more than one of so many failed: /health is DEGRADED
)

// paidOutcomes counts how the paid calls of the last minute ended, by second. Calls that their own mistakes end do not count.
type paidOutcomes struct {
	mu      sync.Mutex
	seconds [outcomesFor]struct{ second, paid, failed int64 }
}

func (o *paidOutcomes) add(failed bool, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	current := &o.seconds[now.Unix()%outcomesFor]
	if current.second == now.Unix()+outcomesFor {
		return // a minute late: it must not erase what ended since
	}
	if current.second != now.Unix() {
		current.second, current.paid, current.failed = now.Unix(), 0, 0
	}
	if failed {
		current.failed++
	} else {
		current.paid++
	}
}

// failing reports whether a noticeable share of the calls failed.
func (o *paidOutcomes) failing(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	var paid, failed int64
	for _, one := range o.seconds {
		if one.second > now.Unix()-outcomesFor {
			paid, failed = paid+one.paid, failed+one.failed
		}
	}
	return paid+failed >= fewOutcomes && failed*oneFailedInOf > paid+failed
}
