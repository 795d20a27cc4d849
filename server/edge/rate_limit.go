package edge

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

const (
	// manyBuckets is how many addresses, accounts or wallets are remembered: 20 MiB at most with the shared ones, at about 250 bytes each.
	manyBuckets   = 1 << 16
	sharedBuckets = 1 << 14 // further ones, of networks
	bucketTries   = 8       // how many buckets are looked at to make room for another
)

// Policy describes a limit for the RateLimit header fields.
type Policy struct {
	Name   string // of the header fields and of the metric: address, account, wallet, tan
	Quota  int
	Window time.Duration
	Whose  string // for the message
	Remedy string // what to do then, for the message
}

// Exceeded is the error of a caller that has no token left.
type Exceeded struct {
	Policy Policy
	After  int // seconds until there is a token
}

func (e *Exceeded) Error() string {
	return fmt.Sprintf("too many unpaid calls %s; wait for Retry-After seconds, then %s", e.Policy.Whose, e.Policy.Remedy)
}

// WriteHeader writes the header fields of draft-ietf-httpapi-ratelimit-headers.
func (e *Exceeded) WriteHeader(header http.Header) {
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", e.Policy.Name, e.Policy.Quota, int(e.Policy.Window.Seconds())))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", e.Policy.Name, e.After))
}

// Exceeded returns the error for a caller that has to wait.
func (p Policy) Exceeded(wait time.Duration) error {
	return &Exceeded{Policy: p, After: max(int(math.Ceil(wait.Seconds())), 1)}
}

// Buckets are the token buckets of one limit. A bucket that is full again is like a new one, so it makes room for others. One that is not
// full stays: else whoever used it up could drop it by calling from many addresses. While there is no room, newcomers share a bucket.
type Buckets[K comparable] struct {
	policy Policy
	rate   Rate
	wider  func(K) K // whose bucket newcomers share; all others share the zero key

	mu  sync.Mutex
	all *simplelru.LRU[K, *rate.Limiter]
}

// NewBuckets returns empty buckets. Name and whose are for the Policy; wider returns whose bucket a newcomer shares.
func NewBuckets[K comparable](name, whose string, limit Rate, wider func(K) K) *Buckets[K] {
	all, _ := simplelru.NewLRU[K, *rate.Limiter](manyBuckets+sharedBuckets+1, nil) // fails for sizes below 1
	window := time.Duration(math.Ceil(float64(limit.Burst)/limit.PerSecond)) * time.Second
	return &Buckets[K]{policy: Policy{name, limit.Burst, window, whose, "send the same request"}, rate: limit, wider: wider, all: all}
}

// find returns the bucket of a key, or the one that it shares. A new one is added, or nil is returned.
func (b *Buckets[K]) find(key K, add bool) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	var others K
	for most := manyBuckets; ; key, most = b.wider(key), most+sharedBuckets {
		bucket, ok := b.all.Get(key)
		switch {
		case ok:
			return bucket
		case key != others && !b.makeRoom(most):
			continue
		case add:
			bucket = rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)
			b.all.Add(key, bucket)
		}
		return bucket
	}
}

// makeRoom drops a bucket that is full again if there are too many.
func (b *Buckets[K]) makeRoom(most int) bool {
	for tries := 0; b.all.Len() >= most && tries < bucketTries; tries++ {
		key, bucket, _ := b.all.GetOldest()
		if bucket.Tokens() >= float64(b.rate.Burst) {
			b.all.Remove(key)
		} else {
			b.all.Get(key) // the next try looks at another one
		}
	}
	return b.all.Len() < most
}

// Take takes a token, or returns the 429.
func (b *Buckets[K]) Take(key K) error {
	if b.find(key, true).Allow() {
		return nil
	}
	return b.policy.Exceeded(b.Wait(key))
}

// Check returns the 429 if there is no token, and takes none.
func (b *Buckets[K]) Check(key K) error {
	if wait := b.Wait(key); wait > 0 {
		return b.policy.Exceeded(wait)
	}
	return nil
}

// Wait returns how long to wait for a token; 0 if there is one.
func (b *Buckets[K]) Wait(key K) time.Duration {
	bucket := b.find(key, false)
	if bucket == nil {
		return 0
	}
	return time.Duration(max(0, 1-bucket.Tokens()) / b.rate.PerSecond * float64(time.Second))
}

// Charge takes tokens for a finished call, at most a full bucket. The bucket may become negative.
func (b *Buckets[K]) Charge(key K, tokens int) {
	b.find(key, true).ReserveN(time.Now(), min(tokens, b.rate.Burst))
}

// Give returns a token. The limiter has no method for that, but it accepts a negative number, and a bucket never holds
// more than its burst (TestTokensAreGivenBack).
func (b *Buckets[K]) Give(key K) {
	if bucket := b.find(key, false); bucket != nil {
		bucket.ReserveN(time.Now(), -1)
	}
}

// siteFactor is how many times the tokens of one address an IPv6 /48 has, which may be one customer's site with 65,536 addresses.
const siteFactor = 10

// AddressBuckets are the buckets of client addresses. An IPv6 address takes its tokens from the bucket of its /48, too.
type AddressBuckets struct {
	*Buckets[netip.Prefix]
	sites *Buckets[netip.Prefix]
}

// NewAddressBuckets returns empty buckets, of which each address has the limit.
func NewAddressBuckets(limit Rate) AddressBuckets {
	site := Rate{PerSecond: siteFactor * limit.PerSecond, Burst: siteFactor * limit.Burst}
	return AddressBuckets{NewBuckets("address", "from this address", limit, WiderNetwork),
		NewBuckets("address", "from this network", site, WiderNetwork)}
}

// each calls what with the bucket of the address, and then with that of its site, until one returns an error.
func (a AddressBuckets) each(address netip.Prefix, what func(b *Buckets[netip.Prefix], key netip.Prefix) error) error {
	if err := what(a.Buckets, address); err != nil || !address.Addr().Is6() {
		return err
	}
	return what(a.sites, WiderNetwork(address))
}

// Take takes a token, or returns the 429.
func (a AddressBuckets) Take(address netip.Prefix) error {
	return a.each(address, (*Buckets[netip.Prefix]).Take)
}

// Check returns the 429 if there is no token, and takes none.
func (a AddressBuckets) Check(address netip.Prefix) error {
	return a.each(address, (*Buckets[netip.Prefix]).Check)
}

// Charge takes tokens for a finished call.
func (a AddressBuckets) Charge(address netip.Prefix, tokens int) {
	_ = a.each(address, func(b *Buckets[netip.Prefix], key netip.Prefix) error { b.Charge(key, tokens); return nil })
}

// Give returns a token.
func (a AddressBuckets) Give(address netip.Prefix) {
	_ = a.each(address, func(b *Buckets[netip.Prefix], key netip.Prefix) error { b.Give(key); return nil })
}
