package edge

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestTokensAreGivenBack pins what buckets.give needs of golang.org/x/time/rate: a negative number gives tokens back, and
// a bucket never holds more than its burst.
func TestTokensAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := NewBuckets("address", "", Rate{PerSecond: 1, Burst: 3}, func(string) string { return "" })
		left := func() (n int) {
			for {
				if limit.Take("a") != nil {
					return n
				}
				n++
			}
		}
		if got := left(); got != 3 {
			t.Errorf("a new bucket has %d tokens, want 3", got)
		}
		limit.Give("a")
		limit.Give("a")
		if got := left(); got != 2 {
			t.Errorf("after two were given back there are %d, want 2", got)
		}
		for range 10 {
			limit.Give("a")
		}
		if got := left(); got != 3 {
			t.Errorf("after ten were given back there are %d, want the burst of 3", got)
		}
		limit.Charge("a", 1)
		limit.Charge("a", 1)
		limit.Give("a")
		limit.Give("a") // what it owed
		if wait := limit.Wait("a"); limit.Take("a") == nil || wait <= 0 || wait > time.Second {
			t.Errorf("the next token comes in %v, want within a second", wait)
		}
		time.Sleep(2 * time.Second)
		if got := left(); got != 2 {
			t.Errorf("after two seconds there are %d, want 2", got)
		}
	})
}

// TestClientAddress: X-Forwarded-For is believed as far as trusted proxies wrote it, and no further.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	limits := Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("fd00::/8")}}
	for _, test := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"nobody in between", "203.0.113.7:4000", nil, "203.0.113.7/32"},
		{"a stranger who claims to be another", "203.0.113.7:4000", []string{"198.51.100.1"}, "203.0.113.7/32"},
		{"a proxy", "10.0.0.1:4000", []string{"198.51.100.1"}, "198.51.100.1/32"},
		{"a proxy behind a proxy", "10.0.0.1:4000", []string{"198.51.100.1, 10.0.0.2"}, "198.51.100.1/32"},
		{"in two lines", "10.0.0.1:4000", []string{"192.0.2.1, 198.51.100.1", "10.0.0.3,10.0.0.2"}, "198.51.100.1/32"},
		{"an address that the caller wrote", "10.0.0.1:4000", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1/32"},
		{"with a port", "10.0.0.1:4000", []string{"198.51.100.1:5000"}, "198.51.100.1/32"},
		{"an IPv6 address", "10.0.0.1:4000", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		{"in brackets", "[fd00::1]:4000", []string{"[2001:db8:1:2:3:4:5:6]:443"}, "2001:db8:1:2::/64"},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:4000", []string{"::ffff:198.51.100.1"}, "198.51.100.1/32"},
		{"no address", "10.0.0.1:4000", []string{"198.51.100.1, unknown"}, "10.0.0.1/32"},
		{"nothing", "10.0.0.1:4000", nil, "10.0.0.1/32"},
		{"only proxies", "10.0.0.1:4000", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3/32"},
		{"commas", "10.0.0.1:4000", []string{strings.Repeat(",", 60_000)}, "10.0.0.1/32"},
	} {
		r := &http.Request{RemoteAddr: test.remote, Header: http.Header{"X-Forwarded-For": test.forwarded}}
		if got := limits.clientAddress(r).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// newcomers takes a token at each of n IPv6 /64s of a /48.
func newcomers(limit *Buckets[netip.Prefix], of, n int) {
	for i := range n {
		raw := netip.MustParseAddr("2001:db8::").As16()
		raw[4], raw[5], raw[6], raw[7] = byte(of>>8), byte(of), byte(i>>8), byte(i)
		_ = limit.Take(network(netip.AddrFrom16(raw)))
	}
}

// TestNewcomersKeepBuckets: 70,000 other networks do not give an address that has used up its tokens a new bucket.
func TestNewcomersKeepBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := NewAddressBuckets(DefaultLimits().Address).Buckets
		greedy := network(netip.MustParseAddr("203.0.113.7"))
		for range limit.rate.Burst {
			_ = limit.Take(greedy)
		}
		newcomers(limit, 1, 1<<16)
		newcomers(limit, 2, 10_000)
		if limit.Take(greedy) == nil {
			t.Error("newcomers gave an address whose tokens were used up new ones")
		}
		if limit.Check(greedy) == nil {
			t.Error("newcomers made the limiter forget an address whose tokens were used up")
		}
		time.Sleep(10 * time.Second) // all are full again
		newcomers(limit, 3, 1<<16)
		if limit.Take(greedy) != nil {
			t.Error("after ten seconds there is no token")
		}
	})
}

// TestNewcomersShareBuckets: while all buckets are in use, newcomers share the bucket of their network, so that their number does not
// multiply their tokens, and what is remembered has an end. Buckets that are full again make room.
func TestNewcomersShareBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := NewBuckets("address", "", Rate{PerSecond: 1, Burst: 2}, WiderNetwork)
		newcomers(limit, 1, 1<<16)
		newcomers(limit, 2, 2)
		for i := range 2 * sharedBuckets {
			newcomers(limit, 10+i, 1)
		}
		if got := limit.all.Len(); got > manyBuckets+sharedBuckets+1 {
			t.Errorf("%d buckets are remembered, want at most %d", got, manyBuckets+sharedBuckets+1)
		}
		neighbour := netip.MustParsePrefix("2001:db8:2:ffff::/64")
		if limit.Check(neighbour) == nil {
			t.Error("a neighbour of two newcomers has tokens; want the bucket that they share")
		}
		if limit.Take(neighbour) == nil {
			t.Error("a neighbour of two newcomers takes a third token of the bucket that they share")
		}
		limit.Give(neighbour)
		limit.Give(neighbour) // one is owed
		if limit.Take(neighbour) != nil {
			t.Error("tokens are not given back to the shared bucket")
		}
		time.Sleep(3 * time.Second)
		for range 2 {
			if limit.Take(neighbour) != nil {
				t.Error("when buckets are full again, a newcomer gets none of its own")
			}
		}
	})
}

// TestSitesShareABucket: the addresses of an IPv6 /48 have ten times the tokens of one together, and those of an IPv4 /24 have their own.
func TestSitesShareABucket(t *testing.T) {
	t.Parallel()
	limit := NewAddressBuckets(Rate{PerSecond: 0.001, Burst: 2})
	taken := func(address string) (n int) {
		for i := range 64 {
			if limit.Take(network(netip.MustParseAddr(fmt.Sprintf(address, i)))) == nil {
				n++
			}
		}
		return n
	}
	if got := taken("2001:db8:1:%x::1"); got != 2*siteFactor {
		t.Errorf("the addresses of a /48 take %d tokens, want %d", got, 2*siteFactor)
	}
	if got := taken("203.0.113.%d"); got != 64 {
		t.Errorf("64 addresses of a /24 take %d tokens, want 64", got)
	}
	first := network(netip.MustParseAddr("2001:db8:1:0::1"))
	limit.Give(first)
	if err := limit.Check(first); err != nil {
		t.Errorf("a token that was given back is refused: %v", err)
	}
	limit.Charge(first, 1)
	if limit.Check(network(netip.MustParseAddr("2001:db8:1:1::1"))) == nil {
		t.Error("what an address is charged does not count for its site")
	}
}

// TestWiderKeys: the network around a client address.
func TestWiderKeys(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"203.0.113.7/32": "203.0.113.0/24", "203.0.113.0/24": "invalid Prefix",
		"2001:db8:1:2::/64": "2001:db8:1::/48", "2001:db8:1::/48": "invalid Prefix"} {
		at := netip.MustParsePrefix(address)
		if got := WiderNetwork(at); got.String() != want {
			t.Errorf("the network around %s is %s, want %s", address, got, want)
		}
	}
}
