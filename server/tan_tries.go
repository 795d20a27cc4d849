package server

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/store"
)

// wrongTANsFor is how long wrong TANs count.
const wrongTANsFor = 10 * time.Minute

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

// allowed tells whether the key, with that many wrong ones at most, may try a TAN, or when it may again.
func (t *tanTries) allowed(key string, most int) (retryAfter time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tries, known := t.wrongs.Get(key)
	if !known {
		return 0, true
	}
	left := time.Until(tries.until)
	return left, left <= 0 || tries.count < most
}

// tooManyTANs is the 429 of a key that is not allowed another try.
func (s *Server) tooManyTANs(most int, retryAfter time.Duration) *problem {
	return s.limited(policy{name: "tan", quota: most, window: wrongTANsFor, whose: "with a wrong TAN"}, retryAfter)
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

// mayTryTAN refuses another TAN of a wallet or an address that has tried too many wrong ones. It is asked where a TAN can be
// guessed: before a payment begins, and where one is redeemed with another request. What has settled for a TAN that was right
// is delivered, whatever others at its address do meanwhile.
func (s *Server) mayTryTAN(ctx context.Context, paid *payment) error {
	if paid.operation.id != createAccount {
		return nil
	}
	most := s.config.Limits.WrongTANs
	for _, key := range tanKeys(ctx, paid) {
		if retryAfter, ok := s.tanTries.allowed(key, most); !ok {
			return s.tooManyTANs(most, retryAfter)
		}
	}
	return nil
}

// countTANs notes the wrong TANs that the handler is given.
func (s *Server) countTANs(paid *payment, handle handler) handler {
	return func(ctx context.Context, tx *store.Store) ([]byte, error) {
		answer, err := handle(ctx, tx)
		if errors.Is(err, store.ErrInvalidTAN) {
			for _, key := range tanKeys(ctx, paid) {
				s.tanTries.wrong(key)
			}
		}
		return answer, err
	}
}

// tanKeys are whose wrong TANs a payment's are.
func tanKeys(ctx context.Context, paid *payment) []string {
	return []string{paid.checked.Payer, addressFrom(ctx)}
}
