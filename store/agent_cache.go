package store

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// cachedFor is how long an agent is found by its key without a query. It is also how long this server still accepts
	// a key that another server has replaced.
	cachedFor = time.Second
	// maxCachedAgents limits the cache to about 30 MB. A full cache is emptied.
	maxCachedAgents = 1 << 16
)

// agentCache caches agents by the hashes of their API keys. An entry lives for one second, counted from before the
// query that loaded it, so it outlives a change by another server by at most one second. A change by this server
// removes the entry before anybody gets the result of the change. The cached record is for authentication; a response
// that shows an account loads it again.
type agentCache struct {
	mu      sync.Mutex
	now     func() time.Time
	changes int // counts forget, so that put rejects what was loaded before a change
	byKey   map[[sha256.Size]byte]cachedAgent
	keys    map[uuid.UUID][sha256.Size]byte // the only key of each agent in byKey
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
	c := &agentCache{now: now}
	c.clear()
	return c
}

func (c *agentCache) clear() {
	c.byKey, c.keys = map[[sha256.Size]byte]cachedAgent{}, map[uuid.UUID][sha256.Size]byte{}
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
		c.clear()
	}
	delete(c.byKey, c.keys[agent.ID]) // one entry per agent, so that forget leaves none
	c.byKey[key], c.keys[agent.ID] = cachedAgent{agent, load.began.Add(cachedFor)}, key
}

// forget removes the agent. Call it after the change is committed.
func (c *agentCache) forget(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.byKey, c.keys[id])
	delete(c.keys, id)
}
