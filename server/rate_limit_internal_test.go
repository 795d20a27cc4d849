package server

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/server/edge"
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
	change := handler{alone: func(context.Context, *change, any) (any, error) { return nil, nil }}
	for name, one := range map[string]struct {
		handler handler
		bytes   int
		want    int
	}{"a message of 200 KiB": {handler{}, 200 << 10, 7}, "a hundred ids": {change, 3_500, 14}} {
		if takes := (&payer{body: (&operation{handler: one.handler}).bodyTokens(one.bytes)}).tokens(); takes != one.want {
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
		_ = s.countPayment(&record{payment: payer{checked: true, byAddress: true, worked: 10 * time.Millisecond}}, down, errUnavailable)
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
	if p.status != http.StatusTooManyRequests || header.Get("Retry-After") != "90" || header.Get("RateLimit-Policy") != `"tan";q=5;w=600` ||
		header.Get("RateLimit") != `"tan";r=0;t=90` || !strings.Contains(p.message, "a new TAN does not") {
		t.Errorf("too many wrong TANs: %+v %v", p, header)
	}
}

// TestNewWalletsShareABucket with those of their network.
func TestNewWalletsShareABucket(t *testing.T) {
	t.Parallel()
	at := netip.MustParsePrefix("2001:db8:1:2::/64")
	if got := aroundWallet(walletAt{address: at}); got != (walletAt{address: edge.WiderNetwork(at)}) {
		t.Errorf("the wallets around %s: %v", at, got)
	}
}
