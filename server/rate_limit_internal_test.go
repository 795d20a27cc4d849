package server

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/x402/evm"
)

// TestConcurrentFailuresAreLimited: calls that fail at the same time have all seen the same token. Each takes one all the same, so that
// their rate does not grow with their number.
func TestConcurrentFailuresAreLimited(t *testing.T) {
	t.Parallel()
	limits := edge.Limits{Address: edge.Rate{PerSecond: 1, Burst: 1}}.WithDefaults()
	s := &Server{rates: newRateLimits(limits)}
	for range 10 {
		_ = s.countPayment(&record{}, false, &problem{status: http.StatusUnauthorized})
	}
	if wait := s.rates.addresses.Wait(netip.Prefix{}); wait < 9*time.Second {
		t.Errorf("after ten concurrent failures the next call is admitted in %s, want 10s: a second each", wait)
	}
	change := handler{transacted: func(context.Context, *change, any) (any, error) { return nil, nil }}
	for name, one := range map[string]struct {
		handler handler
		bytes   int
		want    int
	}{"a message of 200 KiB": {handler{}, 200 << 10, 7}, "a hundred ids": {change, 3_500, 14}} {
		if takes := (&payerBuckets{body: (&operation{handler: one.handler}).bodyTokens(one.bytes)}).tokens(); takes != one.want {
			t.Errorf("a rejected call with %s takes %d tokens, want %d", name, takes, one.want)
		}
	}
}

// TestHangingUpIsNotFree: a database that does not respond takes no token. One that is busy does, and so does a caller that does not wait
// for the response.
func TestHangingUpIsNotFree(t *testing.T) {
	t.Parallel()
	for down, want := range map[bool]time.Duration{true: time.Second, false: 4 * time.Second} {
		limits := edge.Limits{Address: edge.Rate{PerSecond: 1, Burst: 10}}.WithDefaults()
		s := &Server{rates: newRateLimits(limits)}
		s.rates.addresses.Charge(netip.Prefix{}, 10)
		_ = s.countPayment(&record{buckets: payerBuckets{checked: true, byAddress: true, worked: 10 * time.Millisecond}}, down, errUnavailable)
		if wait := s.rates.addresses.Wait(netip.Prefix{}); wait.Round(time.Second) != want {
			t.Errorf("down %t: the address waits for %s, want %s", down, wait, want)
		}
	}
}

// TestTooManyTANs: the 429 tells when to come again, and which limit it is.
func TestTooManyTANs(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	p := problemOf(tooManyTANs(5).Exceeded(90 * time.Second))
	p.limit.WriteHeader(header)
	if p.status != http.StatusTooManyRequests || p.retryAfter != 90 || header.Get("RateLimit-Policy") != `"tan";q=5;w=600` ||
		header.Get("RateLimit") != `"tan";r=0;t=90` || !strings.Contains(p.message, "a new TAN does not") {
		t.Errorf("too many wrong TANs: %+v %v", p, header)
	}
}

// TestNewWalletsShareABucket: while all buckets are in use, new wallets share a bucket with those of their network.
func TestNewWalletsShareABucket(t *testing.T) {
	t.Parallel()
	slow := edge.Rate{PerSecond: 0.001, Burst: 2}
	wallets := newRateLimits(edge.Limits{Address: slow, Account: slow, Wallet: slow}).wallets
	at := func(n int, network string) walletAt {
		return walletAt{evm.Address{byte(n >> 16), byte(n >> 8), byte(n)}, netip.MustParsePrefix(network)}
	}
	for n := range 1 << 16 {
		_ = wallets.Take(at(n, "203.0.113.7/32"))
	}
	for n := range 2 {
		if err := wallets.Take(at(1<<16+n, "2001:db8:1:2::/64")); err != nil {
			t.Errorf("new wallet %d: %v", n, err)
		}
	}
	if wallets.Check(at(0, "2001:db8:1:3::/64")) == nil {
		t.Error("a neighbour of two new wallets has tokens; want the bucket that they share")
	}
	if err := wallets.Check(at(0, "2001:db8:2::/64")); err != nil {
		t.Errorf("a new wallet of another network: %v", err)
	}
}
