package payment

import (
	"context"
	"errors"
	"strings"
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

// smartWallets reports whether an address is a contract. Anybody can invent addresses, so the lookups are bounded: each address
// once, few at a time.
type smartWallets struct {
	chain     Chain
	calls     singleflight.Group
	slots     chan struct{}
	contracts recent[string, bool] // by address, in lower case
}

func newSmartWallets(chain Chain) *smartWallets {
	return &smartWallets{chain: chain, slots: make(chan struct{}, maxWalletCalls), contracts: newRecent[string, bool](maxWallets)}
}

var errWalletCallsBusy = errors.New("too many addresses are being looked up")

// isContract reports whether there is a contract at the address. The error is an *Error if the lookup failed.
func (s *smartWallets) isContract(ctx context.Context, address string) (bool, error) {
	address = strings.ToLower(address)
	if known, ok := s.contracts.get(address); ok {
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
		switch {
		case err == nil && found:
			s.contracts.add(address, true, contractFor)
		case err == nil:
			s.contracts.add(address, false, plainFor)
		}
		return found, err
	})
	if err != nil {
		return false, &Error{Code: CodeBusy, RetryAfter: 2, Cause: err,
			Message: "the signature is not by the key of authorization.from, and the server cannot check at the moment whether that address is a smart wallet; " +
				"send the same request with the same payment again"}
	}
	return found.(bool), nil //nolint:forcetypeassert // see above
}
