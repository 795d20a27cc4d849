package store

import (
	"crypto/sha256"
	"sync"

	"github.com/google/uuid"
)

// agentChannel is where PostgreSQL notifies of agents that have changed (migrations/00004).
const agentChannel = "parley_agents"

// maxCachedAgents bounds the cache: some 30 MB.
const maxCachedAgents = 1 << 16

// agentCache keeps agents by their API keys' hashes, while this server hears of every change: a change of its own it
// forgets before the change is answered, one of another server as soon as PostgreSQL has told, a few milliseconds later.
type agentCache struct {
	mu      sync.Mutex
	live    bool
	changes int // counts what was forgotten, so that nothing older is remembered after it
	byKey   map[[sha256.Size]byte]*Agent
	keys    map[uuid.UUID][sha256.Size]byte
}

// hears begins or ends the time in which changes are heard of.
func (c *agentCache) hears(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != live {
		c.live = live
		c.clear()
	}
}

func (c *agentCache) clear() {
	c.changes++
	c.byKey, c.keys = map[[sha256.Size]byte]*Agent{}, map[uuid.UUID][sha256.Size]byte{}
}

// get returns the agent, or nil and what put needs.
func (c *agentCache) get(key [sha256.Size]byte) (*Agent, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if agent := c.byKey[key]; agent != nil {
		copied := *agent
		return &copied, 0
	}
	return nil, c.changes
}

// put remembers an agent that was loaded after get, unless something has changed meanwhile. One whose key was not used yet is
// not remembered.
func (c *agentCache) put(key [sha256.Size]byte, agent Agent, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live || changes != c.changes || agent.KeyPayment != nil {
		return
	}
	if len(c.byKey) >= maxCachedAgents {
		c.clear()
	}
	c.byKey[key], c.keys[agent.ID] = &agent, key
}

func (c *agentCache) forget(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.byKey, c.keys[id])
	delete(c.keys, id)
}
