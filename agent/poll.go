package agent

import (
	"cmp"
	"math/rand/v2"
	"time"
)

// Polling is when to fetch unread messages. Each fetch costs money, so pauses are short while a conversation is going on and grow
// when nothing happens.
type Polling struct {
	// Wait is how long a fetch waits at the server until there is a message, in whole seconds, at most 60.
	Wait time.Duration
	// First is the pause after a fetch that brought nothing. Each further pause without a message is twice as long. After a message, in or
	// out, there is no pause.
	First time.Duration
	// Longest is the longest pause. It is exceeded only if the budget of the day would not last.
	Longest time.Duration
	// PerDay is the number of fetches in 24 hours.
	PerDay int
}

// DefaultPolling costs at most 0.10 USD a day.
var DefaultPolling = Polling{Wait: time.Minute, First: 30 * time.Second, Longest: 15 * time.Minute, PerDay: 100}

// spread is by how much pauses differ at random, so that agents that began together do not fetch together.
const spread = 0.1

// Poller decides when to fetch next. It is not safe for concurrent use.
type Poller struct {
	Polling
	Now    func() time.Time
	Random func() float64 // in [0, 1)

	pause   time.Duration
	fetched []time.Time // the fetches of the last 24 hours, the oldest first
}

// NewPoller returns a poller that fetches at once. Zero fields take their values from [DefaultPolling].
func NewPoller(policy Polling) *Poller {
	policy.Wait = cmp.Or(policy.Wait, DefaultPolling.Wait)
	policy.First, policy.PerDay = cmp.Or(policy.First, DefaultPolling.First), cmp.Or(policy.PerDay, DefaultPolling.PerDay)
	policy.Longest = max(cmp.Or(policy.Longest, DefaultPolling.Longest), policy.First)
	return &Poller{Polling: policy, Now: time.Now, Random: rand.Float64}
}

// Active notes a message, received or sent: an answer may follow soon.
func (p *Poller) Active() { p.pause = 0 }

// Fetched notes a fetch.
func (p *Poller) Fetched() { p.fetched = append(p.fetched, p.Now()) }

// Pause returns how long to wait before the next fetch, and makes the one after it longer.
func (p *Poller) Pause() time.Duration {
	pause := p.pause
	p.pause = min(max(2*p.pause, p.First), p.Longest)
	pause += time.Duration((2*p.Random() - 1) * spread * float64(pause))
	return max(pause, p.lasting())
}

// Most returns the most fetches that a poller makes in a time from its start: when messages come all the time.
func (p Polling) Most(within time.Duration) (fetches int) {
	var now time.Duration
	poller := NewPoller(p)
	began := time.Now()
	poller.Now, poller.Random = func() time.Time { return began.Add(now) }, func() float64 { return 0 }
	for ; fetches < p.PerDay; fetches++ {
		if now += poller.Pause(); now >= within {
			break
		}
		poller.Fetched()
		poller.Active()
	}
	return fetches
}

// lasting returns the pause with which the budget lasts until the oldest fetches do not count any more, or 0 if it lasts anyway.
func (p *Poller) lasting() time.Duration {
	now := p.Now()
	for len(p.fetched) > 0 && now.Sub(p.fetched[0]) >= day {
		p.fetched = p.fetched[1:]
	}
	if len(p.fetched) == 0 {
		return 0
	}
	until := day - now.Sub(p.fetched[0])
	left := p.PerDay - len(p.fetched)
	if left <= 0 {
		return until
	}
	if needed := int(until / p.Longest); left > needed {
		return 0
	}
	return until / time.Duration(left)
}
