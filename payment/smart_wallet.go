package payment

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	// contractFor is how long the result "contract" is cached, plainFor how long the result "no contract": a smart wallet may
	// be deployed at any time.
	contractFor = 10 * time.Minute
	plainFor    = time.Minute
	// maxWallets bounds the cache to about 2 MB.
	maxWallets = 10_000
	// maxWalletCalls bounds the concurrent lookups. Each takes at most walletTimeout.
	maxWalletCalls = 4
	walletTimeout  = 2 * time.Second
)

// smartWallets tells whether an address is a contract. Anybody can invent addresses, so the lookups are bounded: each address
// once, few at a time.
type smartWallets struct {
	chain   Chain
	now     func() time.Time
	calls   singleflight.Group
	slots   chan struct{}
	mu      sync.Mutex
	wallets map[string]wallet // by address, in lower case
}

type wallet struct {
	isContract bool
	until      time.Time
}

func newSmartWallets(chain Chain, now func() time.Time) *smartWallets {
	return &smartWallets{chain: chain, now: now, slots: make(chan struct{}, maxWalletCalls), wallets: map[string]wallet{}}
}

var errWalletCallsBusy = errors.New("too many addresses are being looked up")

// isContract tells whether there is a contract at the address. The error is an *Error if the lookup failed.
func (s *smartWallets) isContract(ctx context.Context, address string) (bool, error) {
	address = strings.ToLower(address)
	if known, ok := s.get(address); ok {
		return known, nil
	}
	found, err, _ := s.calls.Do(address, func() (any, error) {
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		default:
			return false, errWalletCallsBusy
		}
		// Other callers share this lookup, so it does not end with the first one.
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), walletTimeout)
		defer cancel()
		found, err := s.chain.HasCode(asking, address)
		if err == nil {
			s.put(address, found)
		}
		return found, err
	})
	if err != nil {
		return false, &Error{Code: CodeBusy, RetryAfter: 2, Cause: err,
			Message: "the signature is not from the key of authorization.from, and the server cannot check now whether that address is a smart wallet; " +
				"send the same request with the same payment again"}
	}
	return found.(bool), nil //nolint:forcetypeassert // see above
}

func (s *smartWallets) get(address string) (isContract, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.wallets[address]
	return known.isContract, ok && s.now().Before(known.until)
}

func (s *smartWallets) put(address string, isContract bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.wallets[address]; !known && len(s.wallets) >= maxWallets {
		for any := range s.wallets { // any entry
			delete(s.wallets, any)
			break
		}
	}
	until := s.now().Add(plainFor)
	if isContract {
		until = s.now().Add(contractFor)
	}
	s.wallets[address] = wallet{isContract, until}
}
