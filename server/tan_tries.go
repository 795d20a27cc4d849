package server

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/store"
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

// createAccount is the operation that takes a TAN.
const createAccount = "createAccount"

// limitTANs lets the handler try a TAN, unless its wallet or its address has tried too many wrong ones.
func (s *Server) limitTANs(paid *payment, handle handler) handler {
	return func(ctx context.Context, tx *store.Store) ([]byte, error) {
		keys := []string{paid.checked.Payer, addressFrom(ctx)}
		for _, key := range keys {
			if retryAfter, ok := s.tanTries.allowed(key); !ok {
				return nil, s.tooManyTANs(retryAfter)
			}
		}
		answer, err := handle(ctx, tx)
		if errors.Is(err, store.ErrInvalidTAN) {
			for _, key := range keys {
				s.tanTries.wrong(key)
			}
		}
		return answer, err
	}
}
