package store

import (
	"crypto/sha256"
	"sync"
	"time"
)

const (
	// cachedFor is how long an agent is found by its key without a query. It is also how long this server still accepts
	// a key that another server has replaced.
	cachedFor = time.Second
	// maxCachedAgents limits the cache to about 30 MB. A full cache is emptied.
	maxCachedAgents = 1 << 16
)

// agentCache caches agents by the hashes of their API keys, for authentication. An entry lives for one second, counted from before the
// query that loaded it, so it outlives a change by another server by at most one second. A change by this server empties the cache before
// anybody gets the result of the change: changes are rare.
type agentCache struct {
	mu      sync.Mutex
	now     func() time.Time
	changes int // counts clear, so that put rejects what was loaded before a change
	byKey   map[[sha256.Size]byte]cachedAgent
}

type cachedAgent struct {
	Agent
	until time.Time
}

// load is the state before a query.
type load struct {
	began   time.Time
	changes int
}

func newAgentCache(now func() time.Time) *agentCache {
	return &agentCache{now: now, byKey: map[[sha256.Size]byte]cachedAgent{}}
}

// get returns the agent. If it returns nil, query the agent and pass the load to put.
func (c *agentCache) get(key [sha256.Size]byte) (*Agent, load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if cached, ok := c.byKey[key]; ok && now.Before(cached.until) {
		return &cached.Agent, load{}
	}
	return nil, load{now, c.changes}
}

// put caches an agent that was queried after get, unless this server has changed an agent since. An agent whose key has
// not been used yet is not cached, because its first call has to record the use.
func (c *agentCache) put(key [sha256.Size]byte, agent Agent, load load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if load.changes != c.changes || agent.KeyPayment != nil {
		return
	}
	if len(c.byKey) >= maxCachedAgents {
		clear(c.byKey)
	}
	c.byKey[key] = cachedAgent{agent, load.began.Add(cachedFor)}
}

// clear empties the cache. Call it after a change of an agent is committed.
func (c *agentCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	clear(c.byKey)
}
