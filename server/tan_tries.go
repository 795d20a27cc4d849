package server

import (
	"context"
	"errors"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// wrongTANsFor is how long a wrong TAN counts.
const wrongTANsFor = 10 * time.Minute

// tanTries counts wrong TANs per wallet and per address that sent them. It does not count per username, so nobody can
// use up the tries of another agent.
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

// allowed tells whether the key may try a TAN, or how long it must wait.
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

// tooManyTANs returns the 429 for too many wrong TANs.
func (s *Server) tooManyTANs(most int, retryAfter time.Duration) *problem {
	return s.limited(policy{name: "tan", quota: most, window: wrongTANsFor, whose: "with a wrong TAN"}, retryAfter)
}

// wrong records a wrong TAN.
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

// limitTANs limits the wrong TANs of a call. The limit is checked where a TAN can be guessed: before a payment begins,
// and before a payment is redeemed with another request. A settled payment with a correct TAN is always delivered.
func (s *Server) limitTANs(made *payment.Call, record *record) {
	if record.operation.ID != createAccount {
		return
	}
	keys := []string{made.Attempt.Payer(), record.payment.address.String()}
	made.Admit = func() error {
		for _, key := range keys {
			if retryAfter, ok := s.tanTries.allowed(key, s.config.Limits.WrongTANs); !ok {
				return s.tooManyTANs(s.config.Limits.WrongTANs, retryAfter)
			}
		}
		return nil
	}
	handle := made.Handle
	made.Handle = func(ctx context.Context, tx *store.Store, paid payment.Paid) ([]byte, error) {
		response, err := handle(ctx, tx, paid)
		if errors.Is(err, store.ErrInvalidTAN) {
			for _, key := range keys {
				s.tanTries.wrong(key)
			}
		}
		return response, err
	}
}
