package server

import (
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestTokensAreGivenBack pins what buckets.give needs of golang.org/x/time/rate: a negative number gives tokens back, and
// a bucket never holds more than its burst.
func TestTokensAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := newBuckets[string]("address", "", Rate{PerSecond: 1, Burst: 3}, func(string) string { return "" })
		left := func() (n int) {
			for {
				if _, ok := limit.take("a"); !ok {
					return n
				}
				n++
			}
		}
		if got := left(); got != 3 {
			t.Errorf("a new bucket has %d tokens, want 3", got)
		}
		limit.give("a")
		limit.give("a")
		if got := left(); got != 2 {
			t.Errorf("after two were given back there are %d, want 2", got)
		}
		for range 10 {
			limit.give("a")
		}
		if got := left(); got != 3 {
			t.Errorf("after ten were given back there are %d, want the burst of 3", got)
		}
		limit.charge("a", 1)
		limit.charge("a", 1)
		limit.give("a")
		limit.give("a") // what it owed
		if wait, ok := limit.take("a"); ok || wait <= 0 || wait > time.Second {
			t.Errorf("the next token comes in %v, want within a second", wait)
		}
		time.Sleep(2 * time.Second)
		if got := left(); got != 2 {
			t.Errorf("after two seconds there are %d, want 2", got)
		}
	})
}

// TestConcurrentFailuresAreLimited: calls that fail at the same time have all seen the same token. Each takes one all the same, so that
// their rate does not grow with their number.
func TestConcurrentFailuresAreLimited(t *testing.T) {
	t.Parallel()
	limits := Limits{Address: Rate{PerSecond: 1, Burst: 1}}.withDefaults()
	s := &Server{rates: newRateLimits(limits), metrics: newMetrics(nil, new(atomic.Int64))}
	for range 10 {
		_ = s.countPayment(&record{}, false, &problem{status: http.StatusUnauthorized})
	}
	if wait, _ := s.rates.addresses.empty(netip.Prefix{}); wait < 9*time.Second {
		t.Errorf("after ten concurrent failures the next call is admitted in %s, want 10s: a second each", wait)
	}
	if long := (&payer{body: 200 << 10}).tokens(); long != 7 {
		t.Errorf("a rejected call with a body of 200 KiB takes %d tokens, want 7", long)
	}
}

// TestHangingUpIsNotFree: an unavailable database takes no token, but whoever does not wait for the response pays for the work.
func TestHangingUpIsNotFree(t *testing.T) {
	t.Parallel()
	for hungUp, want := range map[bool]time.Duration{false: time.Second, true: 4 * time.Second} {
		limits := Limits{Address: Rate{PerSecond: 1, Burst: 10}}.withDefaults()
		s := &Server{rates: newRateLimits(limits), metrics: newMetrics(nil, new(atomic.Int64))}
		s.rates.addresses.charge(netip.Prefix{}, 10)
		_ = s.countPayment(&record{payment: payer{checked: true, byAddress: true, worked: 2 * workPerToken}}, hungUp, errUnavailable)
		if wait, _ := s.rates.addresses.empty(netip.Prefix{}); wait.Round(time.Second) != want {
			t.Errorf("hung up %t: the address waits for %s, want %s", hungUp, wait, want)
		}
	}
}

// TestTooManyTANs: the 429 tells when to come again, and which limit it is.
func TestTooManyTANs(t *testing.T) {
	t.Parallel()
	s := &Server{metrics: newMetrics(nil, new(atomic.Int64))}
	header := http.Header{}
	p := s.tooManyTANs(5, 90*time.Second)
	p.limit.writeHeader(header, p.retryAfter)
	if p.status != http.StatusTooManyRequests || p.retryAfter != 90 || header.Get("RateLimit-Policy") != `"tan";q=5;w=600` || header.Get("RateLimit") != `"tan";r=0;t=90` {
		t.Errorf("too many wrong TANs: %+v %v", p, header)
	}
}

// TestClientAddress: X-Forwarded-For is believed as far as trusted proxies wrote it, and no further.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	s := &Server{config: Config{Limits: Limits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}}}
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
		if got := s.clientAddress(r).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
