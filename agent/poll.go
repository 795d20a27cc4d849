package agent

import (
	"math/rand/v2"
	"time"
)

// Polling is when to fetch unread messages. Each fetch costs the same, however long it waits at the server. After a message, whoever wrote
// it, the next fetch follows at once.
type Polling struct {
	// Wait is how long a fetch waits at the server until there is a message, in whole seconds, at most 60.
	Wait time.Duration
	// First is the pause after a fetch that brought nothing. Each further pause without a message is twice as long, at most Longest.
	First, Longest time.Duration
}

// DefaultPolling costs about 0.30 USD a day: a quiet inbox is fetched every six minutes.
var DefaultPolling = Polling{Wait: time.Minute, First: 30 * time.Second, Longest: 5 * time.Minute}

// spread is by how much pauses differ at random, so that agents that began together do not fetch together.
const spread = 0.1

// after returns the pause after a fetch, whose last pause was before. came is true if there were messages.
func (p Polling) after(before time.Duration, came bool) time.Duration {
	if came {
		return 0
	}
	return min(max(2*before, p.First), p.Longest)
}

// spreadOut returns a pause that differs by chance.
func spreadOut(pause time.Duration) time.Duration {
	return pause + time.Duration((2*rand.Float64()-1)*spread*float64(pause)) //nolint:gosec // not for secrets
}
