package store

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestAgentCacheInAnyOrder plays rotations by this server and by others, and look-ups whose three steps (get, query, put)
// come at any time between them. However they mix, a key that this server has replaced is never found, and one that
// another has replaced not a second later.
func TestAgentCacheInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		clock := time.Now()
		cache := newAgentCache(func() time.Time { return clock })
		type key = [sha256.Size]byte
		agent := Agent{ID: uuid.New()}
		current, ends := byte(1), map[byte]time.Time{} // until when a replaced key may be found
		var committed []byte                           // replaced by this server, which has not reported it yet
		type lookup struct {
			key     byte
			load    load
			queried bool
			found   bool
		}
		var running []*lookup
		for range 60 {
			clock = clock.Add(time.Duration(random.IntN(400)) * time.Millisecond)
			switch step := random.IntN(7); {
			case step == 0: // another server rotates
				ends[current] = clock.Add(cachedFor)
				current++
			case step == 1: // this server rotates; the transaction is over a moment later
				committed = append(committed, current)
				current++
			case step == 2:
				for _, replaced := range committed {
					ends[replaced] = clock
				}
				committed = nil
				cache.clear()
			case step == 3 || len(running) == 0: // a call comes, with the key of now or with an older one
				name := max(1, current-byte(random.IntN(3)))
				found, load := cache.get(key{name})
				if end, replaced := ends[name]; found != nil && replaced && !clock.Before(end) {
					t.Fatalf("seed %d: key %d is found %v after it should have ended", seed, name, clock.Sub(end))
				}
				if found == nil {
					running = append(running, &lookup{key: name, load: load})
				}
			default: // a look-up goes on
				i := random.IntN(len(running))
				if one := running[i]; !one.queried {
					one.queried, one.found = true, one.key == current
				} else {
					if one.found {
						cache.put(key{one.key}, agent, one.load)
					}
					running = append(running[:i], running[i+1:]...)
				}
			}
		}
	}
}
