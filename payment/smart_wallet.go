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
	// contractFor is how long an address counts as a contract without being looked up again, plainFor how long as none: a
	// wallet may be deployed at any time.
	contractFor = 10 * time.Minute
	plainFor    = time.Minute
	// maxWallets bounds what is remembered: some 2 MB.
	maxWallets = 10_000
	// maxWalletCalls is how many addresses are looked up at a time, each for at most walletTimeout.
	maxWalletCalls = 4
	walletTimeout  = 2 * time.Second
)

// smartWallets tells whether an address is a contract's. Anybody can make up addresses, so what it asks of the chain is
// bounded: each address once, few at a time.
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

// isContract tells whether there is a contract at the address. With an error that is not known now.
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
		// Others wait for this call too, so it does not end with the first caller.
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
			Message: "the signature is not by the key of authorization.from, and whether that is a smart wallet cannot be looked up now: " +
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
		for any := range s.wallets { // whichever comes first
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
