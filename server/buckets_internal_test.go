package server

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// newcomers takes a token at each of n IPv6 /64s of a /48.
func newcomers(limit *buckets[netip.Prefix], of, n int) {
	for i := range n {
		raw := netip.MustParseAddr("2001:db8::").As16()
		raw[4], raw[5], raw[6], raw[7] = byte(of>>8), byte(of), byte(i>>8), byte(i)
		limit.take(network(netip.AddrFrom16(raw)))
	}
}

// TestNewcomersKeepBuckets: 70,000 other networks do not give an address that has used up its tokens a new bucket.
func TestNewcomersKeepBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := newRateLimits(DefaultLimits()).addresses
		greedy := network(netip.MustParseAddr("203.0.113.7"))
		for range limit.rate.Burst {
			limit.take(greedy)
		}
		newcomers(limit, 1, 1<<16)
		newcomers(limit, 2, 10_000)
		if _, ok := limit.take(greedy); ok {
			t.Error("newcomers gave an address whose tokens were used up new ones")
		}
		if _, empty := limit.empty(greedy); !empty {
			t.Error("newcomers made the limiter forget an address whose tokens were used up")
		}
		time.Sleep(10 * time.Second) // all are full again
		newcomers(limit, 3, 1<<16)
		if _, ok := limit.take(greedy); !ok {
			t.Error("after ten seconds there is no token")
		}
	})
}

// TestNewcomersShareBuckets: while all buckets are in use, newcomers share the bucket of their network, so that their number does not
// multiply their tokens, and what is remembered has an end. Buckets that are full again make room.
func TestNewcomersShareBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := newBuckets("address", "", Rate{PerSecond: 1, Burst: 2}, widerNetwork)
		newcomers(limit, 1, 1<<16)
		newcomers(limit, 2, 2)
		for i := range 2 * sharedBuckets {
			newcomers(limit, 10+i, 1)
		}
		if got := limit.all.Len(); got > manyBuckets+sharedBuckets+1 {
			t.Errorf("%d buckets are remembered, want at most %d", got, manyBuckets+sharedBuckets+1)
		}
		neighbour := netip.MustParsePrefix("2001:db8:2:ffff::/64")
		if wait, empty := limit.empty(neighbour); !empty || wait <= 0 {
			t.Errorf("a neighbour of two newcomers: empty %t, wait %v; want the bucket that they share", empty, wait)
		}
		if _, ok := limit.take(neighbour); ok {
			t.Error("a neighbour of two newcomers takes a third token of the bucket that they share")
		}
		limit.give(neighbour)
		limit.give(neighbour) // one is owed
		if _, ok := limit.take(neighbour); !ok {
			t.Error("tokens are not given back to the shared bucket")
		}
		time.Sleep(3 * time.Second)
		for range 2 {
			if _, ok := limit.take(neighbour); !ok {
				t.Error("when buckets are full again, a newcomer gets none of its own")
			}
		}
	})
}

// TestWiderKeys: new wallets share a bucket with those of their network, new accounts with all new accounts.
func TestWiderKeys(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"203.0.113.7/32": "203.0.113.0/24", "203.0.113.0/24": "invalid Prefix", "2001:db8:1:2::/64": "2001:db8:1::/48", "2001:db8:1::/48": "invalid Prefix"} {
		at := netip.MustParsePrefix(address)
		if got := widerNetwork(at); got.String() != want {
			t.Errorf("the network around %s is %s, want %s", address, got, want)
		}
		if got := widerWallet(walletAt{address: at}); got != (walletAt{address: widerNetwork(at)}) {
			t.Errorf("the wallets around %s: %v", address, got)
		}
	}
}
