//go:build failover

package failover

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// outcome is what callers saw of a fault.
type outcome struct {
	fault   string
	outages []time.Duration // longest time without an acknowledged call, by route
	acked   int             // paid calls
	refused int             // 503
	lost    int             // connections
	longest time.Duration   // that a call took
	late    int             // refusals that began five seconds after the fault or later
	late99  time.Duration   // their 99th percentile
}

func (o *outcome) String() string {
	return fmt.Sprintf("%s: no call acknowledged for %.1f s (%s), %.1f s (%s); %d acknowledged, %d refused, %d connections lost, longest "+
		"call %.2f s, p99 of %d later refusals %.2f s",
		o.fault, o.outages[0].Seconds(), routes[0], o.outages[1].Seconds(), routes[1], o.acked, o.refused, o.lost, o.longest.Seconds(), o.late,
		o.late99.Seconds())
}

// measure describes the time since a fault began, without calls that wait.
func (t *transport) measure(name string, broken time.Time) *outcome {
	o := &outcome{fault: name, outages: make([]time.Duration, len(t.servers))}
	last := make([]time.Time, len(t.servers))
	for i := range last {
		last[i] = broken
	}
	attempts := t.since(broken)
	slices.SortFunc(attempts, func(a, b *attempt) int { return a.to.Compare(b.to) })
	var late []time.Duration
	for _, a := range attempts {
		if a.wait > 0 {
			continue
		}
		took := a.to.Sub(a.from)
		if a.server.couldRespond(a.window) {
			o.longest = max(o.longest, took)
		}
		switch {
		case a.status == 0:
			o.lost++
		case a.status == http.StatusServiceUnavailable:
			o.refused++
			if a.from.Sub(broken) > 5*time.Second {
				late = append(late, took)
			}
		case a.status == http.StatusOK && a.paid:
			o.acked++
			i := slices.Index(t.servers, a.server)
			o.outages[i] = max(o.outages[i], a.to.Sub(last[i]))
			last[i] = a.to
		}
	}
	if o.late = len(late); o.late > 0 {
		slices.Sort(late)
		o.late99 = late[len(late)*99/100]
	}
	return o
}
