package server

import (
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	wrongTANs    = 5
	wrongTANsFor = 10 * time.Minute
)

// tanTries counts the wrong TANs of whoever makes them, a wallet or an address, never those of the TAN that is guessed:
// nobody can use up another's.
type tanTries struct {
	mu     sync.Mutex
	wrongs *lru.Cache[string, *wrongTries]
}

type wrongTries struct {
	count int
	until time.Time // from the first one
}

func newTANTries() *tanTries {
	wrongs, _ := lru.New[string, *wrongTries](manyBuckets) // fails for sizes below 1
	return &tanTries{wrongs: wrongs}
}

// allowed tells whether the key may try a TAN, or when it may again.
func (t *tanTries) allowed(key string) (retryAfter time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tries, known := t.wrongs.Get(key)
	if !known {
		return 0, true
	}
	left := time.Until(tries.until)
	return left, left <= 0 || tries.count < wrongTANs
}

// tooManyTANs is the 429 of a key that is not allowed another try.
func (s *Server) tooManyTANs(retryAfter time.Duration) *problem {
	return s.limited(policy{name: "tan", quota: wrongTANs, window: wrongTANsFor, whose: "with a wrong TAN"}, retryAfter)
}

// wrong notes that the key tried a wrong TAN.
func (t *tanTries) wrong(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tries, known := t.wrongs.Get(key)
	if !known || !time.Now().Before(tries.until) {
		tries = &wrongTries{until: time.Now().Add(wrongTANsFor)}
		t.wrongs.Add(key, tries)
	}
	tries.count++
}
