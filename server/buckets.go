package server

import (
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	// manyBuckets is how many addresses, accounts or wallets are remembered: 20 MiB at most with the shared ones, at about 250 bytes each.
	manyBuckets   = 1 << 16
	sharedBuckets = 1 << 14 // further ones, of networks
	bucketTries   = 8       // how many buckets are looked at to make room for another
)

// buckets are the token buckets of one limit. A bucket that is full again is like a new one, so it makes room for others. One that is not
// full stays: else whoever used it up could drop it by calling from many addresses. While there is no room, newcomers share a bucket.
type buckets[K comparable] struct {
	policy policy
	rate   Rate
	wider  func(K) K // whose bucket newcomers share; the zero key is that of all others

	mu  sync.Mutex
	all *simplelru.LRU[K, *rate.Limiter]
}

func newBuckets[K comparable](name, whose string, limit Rate, wider func(K) K) *buckets[K] {
	all, _ := simplelru.NewLRU[K, *rate.Limiter](manyBuckets+sharedBuckets+1, nil) // fails for sizes below 1
	window := time.Duration(math.Ceil(float64(limit.Burst)/limit.PerSecond)) * time.Second
	return &buckets[K]{policy: policy{name, limit.Burst, window, whose}, rate: limit, wider: wider, all: all}
}

// of returns the bucket of a key, or the one that it shares.
func (b *buckets[K]) of(key K) *rate.Limiter { return b.find(key, true) }

// known returns the bucket that of would return, or nil if that would be a new one.
func (b *buckets[K]) known(key K) *rate.Limiter { return b.find(key, false) }

func (b *buckets[K]) find(key K, add bool) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	var others K
	for most := manyBuckets; ; key, most = b.wider(key), most+sharedBuckets {
		bucket, ok := b.all.Get(key)
		switch {
		case ok:
			return bucket
		case key != others && !b.room(most):
			continue
		case add:
			bucket = rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)
			b.all.Add(key, bucket)
		}
		return bucket
	}
}

// room drops a bucket that is full again if there are too many.
func (b *buckets[K]) room(most int) bool {
	for range bucketTries {
		if b.all.Len() < most {
			return true
		}
		key, bucket, _ := b.all.GetOldest()
		if bucket.Tokens() >= float64(b.rate.Burst) {
			b.all.Remove(key)
		} else {
			b.all.Get(key) // the next try looks at another one
		}
	}
	return b.all.Len() < most
}

// take takes a token, or returns how long to wait for one.
func (b *buckets[K]) take(key K) (wait time.Duration, ok bool) {
	bucket := b.of(key)
	if bucket.Allow() {
		return 0, true
	}
	return b.wait(bucket), false
}

// empty reports whether take would fail, and takes no token.
func (b *buckets[K]) empty(key K) (wait time.Duration, empty bool) {
	bucket := b.known(key)
	if bucket == nil || bucket.Tokens() >= 1 {
		return 0, false
	}
	return b.wait(bucket), true
}

func (b *buckets[K]) wait(bucket *rate.Limiter) time.Duration {
	return time.Duration((1 - bucket.Tokens()) / b.rate.PerSecond * float64(time.Second))
}

// charge takes tokens for a finished call, at most a full bucket. The bucket may become negative.
func (b *buckets[K]) charge(key K, tokens int) {
	b.of(key).ReserveN(time.Now(), min(tokens, b.rate.Burst))
}

// give returns a token. The limiter has no method for that, but it accepts a negative number, and a bucket never holds
// more than its burst (TestTokensAreGivenBack).
func (b *buckets[K]) give(key K) {
	if bucket := b.known(key); bucket != nil {
		bucket.ReserveN(time.Now(), -1)
	}
}

// rateLimits count unpaid calls.
type rateLimits struct {
	addresses *buckets[netip.Prefix]
	recent    *buckets[netip.Prefix] // for recent payers at an address without tokens; nobody is exempt from it
	accounts  *buckets[uuid.UUID]
	wallets   *buckets[walletAt]
}

// walletAt is a wallet at a client address. A settled authorization is public and can be replayed by anybody. A replay
// from another address must not use up the tokens of the wallet's owner.
type walletAt struct {
	wallet  evm.Address
	address netip.Prefix
}

func newRateLimits(limits Limits) *rateLimits {
	return &rateLimits{
		addresses: newBuckets[netip.Prefix]("address", "from this address", limits.Address, widerNetwork),
		recent:    newBuckets[netip.Prefix]("address", "from this address", limits.Address, widerNetwork),
		accounts:  newBuckets[uuid.UUID]("account", "of this account", limits.Account, func(uuid.UUID) uuid.UUID { return uuid.UUID{} }),
		wallets:   newBuckets[walletAt]("wallet", "by this wallet", limits.Wallet, widerWallet),
	}
}

// widerNetwork returns the network around a client address: the /48 of an IPv6 address, the /24 of an IPv4 address; then all.
func widerNetwork(address netip.Prefix) netip.Prefix {
	bits := 24
	if address.Addr().Is6() {
		bits = 48
	}
	if address.Bits() <= bits {
		return netip.Prefix{}
	}
	wider, _ := address.Addr().Prefix(bits)
	return wider
}

// widerWallet lets new wallets of a network share a bucket: wallets cost nothing.
func widerWallet(w walletAt) walletAt { return walletAt{address: widerNetwork(w.address)} }
