package store

import (
	"crypto/sha256"
	"sync"
	"time"

	"github.com/google/uuid"
)

const (
	// cachedFor is how long an agent is found by its key without a query, and so how long a key that another server has
	// replaced still works on this one.
	cachedFor = time.Second
	// maxCachedAgents bounds the cache: some 30 MB.
	maxCachedAgents = 1 << 16
)

// agentCache keeps agents by the hashes of their API keys. An entry lives for one second, counted from before the query
// that loaded it, so that it never outlives a change elsewhere by more than that. A change by this server removes the
// entry before the change is reported to anybody. It keeps the record of authentication; a response that shows an
// account loads it anew.
type agentCache struct {
	mu      sync.Mutex
	now     func() time.Time
	changes int // counts forget, so that what was loaded before a change is not put after it
	byKey   map[[sha256.Size]byte]cachedAgent
	keys    map[uuid.UUID][sha256.Size]byte // the one key by which byKey has each agent
}

type cachedAgent struct {
	Agent
	until time.Time
}

// load is the moment before a query.
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

// get returns the agent; where it returns nil, query it and pass the load to put.
func (c *agentCache) get(key [sha256.Size]byte) (*Agent, load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if cached, ok := c.byKey[key]; ok && now.Before(cached.until) {
		return &cached.Agent, load{}
	}
	return nil, load{now, c.changes}
}

// put keeps an agent that was queried after get, unless this server has changed an agent since. An agent whose key was not used
// yet is not kept: its first call notes that.
func (c *agentCache) put(key [sha256.Size]byte, agent Agent, load load) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if load.changes != c.changes || agent.KeyPayment != nil {
		return
	}
	if len(c.byKey) >= maxCachedAgents {
		c.clear()
	}
	delete(c.byKey, c.keys[agent.ID]) // one entry for each agent, so that forget leaves none
	c.byKey[key], c.keys[agent.ID] = cachedAgent{agent, load.began.Add(cachedFor)}, key
}

// forget removes the agent. Call it when the change is committed.
func (c *agentCache) forget(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.byKey, c.keys[id])
	delete(c.keys, id)
}
