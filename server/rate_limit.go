package server

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402/evm"
)

// Limits bound what callers that do not pay may use. A zero field has the value of DefaultLimits.
type Limits struct {
	// Unpaid calls. A paid call takes no token.
	Address Rate // of a client address: an IPv4 address, or the /64 of an IPv6 address
	Account Rate
	Wallet  Rate // of a wallet at one client address

	WrongTANs int // of a wallet, and of a client address, in ten minutes

	Connections           int // open at a time
	ConnectionsPerAddress int

	// TrustedProxies may set X-Forwarded-For, and have no limit of connections.
	TrustedProxies []netip.Prefix
}

// Rate is a token bucket.
type Rate struct {
	PerSecond float64
	Burst     int
}

// DefaultLimits are for the open Internet. Many agents may share an address, so its burst allows a thousand concurrent
// calls that each asked for the price first. An account or wallet belongs to one agent.
func DefaultLimits() Limits {
	return Limits{
		Address: Rate{PerSecond: 100, Burst: 1000}, Account: Rate{PerSecond: 20, Burst: 200}, Wallet: Rate{PerSecond: 20, Burst: 200},
		WrongTANs: 5, Connections: 4096, ConnectionsPerAddress: 1024,
	}
}

func (l Limits) withDefaults() Limits {
	defaults := DefaultLimits()
	for _, field := range []struct{ value, otherwise *Rate }{
		{&l.Address, &defaults.Address}, {&l.Account, &defaults.Account}, {&l.Wallet, &defaults.Wallet},
	} {
		if *field.value == (Rate{}) {
			*field.value = *field.otherwise
		}
	}
	if l.WrongTANs == 0 {
		l.WrongTANs = defaults.WrongTANs
	}
	if l.Connections == 0 {
		l.Connections = defaults.Connections
	}
	if l.ConnectionsPerAddress == 0 {
		l.ConnectionsPerAddress = min(defaults.ConnectionsPerAddress, l.Connections)
	}
	return l
}

// manyBuckets is how many addresses, accounts or wallets are remembered: 16 MiB at most, at about 250 bytes each. The
// one that was seen least recently is dropped, and starts with a full bucket again.
const manyBuckets = 1 << 16

// buckets are the token buckets of one limit.
type buckets[K comparable] struct {
	policy policy
	rate   Rate
	all    *lru.Cache[K, *rate.Limiter]
}

// policy describes a limit for the RateLimit header fields.
type policy struct {
	name   string // of the header fields and of the metric: address, account, wallet, tan
	quota  int
	window time.Duration
	whose  string // for the message
}

func newBuckets[K comparable](name, whose string, limit Rate) *buckets[K] {
	all, _ := lru.New[K, *rate.Limiter](manyBuckets) // fails for sizes below 1
	window := time.Duration(math.Ceil(float64(limit.Burst)/limit.PerSecond)) * time.Second
	return &buckets[K]{policy{name, limit.Burst, window, whose}, limit, all}
}

func (b *buckets[K]) of(key K) *rate.Limiter {
	if bucket, ok := b.all.Get(key); ok {
		return bucket
	}
	bucket := rate.NewLimiter(rate.Limit(b.rate.PerSecond), b.rate.Burst)
	if before, ok, _ := b.all.PeekOrAdd(key, bucket); ok {
		return before
	}
	return bucket
}

// take takes a token, or returns how long to wait for one.
func (b *buckets[K]) take(key K) (wait time.Duration, ok bool) {
	bucket := b.of(key)
	if bucket.Allow() {
		return 0, true
	}
	return b.wait(bucket), false
}

// empty tells whether take would fail, and takes no token.
func (b *buckets[K]) empty(key K) (wait time.Duration, empty bool) {
	bucket, ok := b.all.Peek(key)
	if !ok || bucket.Tokens() >= 1 {
		return 0, false
	}
	return b.wait(bucket), true
}

func (b *buckets[K]) wait(bucket *rate.Limiter) time.Duration {
	return time.Duration((1 - bucket.Tokens()) / b.rate.PerSecond * float64(time.Second))
}

// charge takes a token for a finished call. The bucket may become negative.
func (b *buckets[K]) charge(key K) { b.of(key).ReserveN(time.Now(), 1) }

// give returns a token. The limiter has no method for that, but it accepts a negative number, and a bucket never holds
// more than its burst (TestTokensAreGivenBack).
func (b *buckets[K]) give(key K) {
	if bucket, ok := b.all.Peek(key); ok {
		bucket.ReserveN(time.Now(), -1)
	}
}

// rateLimits count unpaid calls.
type rateLimits struct {
	addresses *buckets[netip.Prefix]
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
		addresses: newBuckets[netip.Prefix]("address", "from this address", limits.Address),
		accounts:  newBuckets[uuid.UUID]("account", "of this account", limits.Account),
		wallets:   newBuckets[walletAt]("wallet", "by this wallet", limits.Wallet),
	}
}

// payer says which buckets are charged if a call with a payment ends unpaid. A call in progress takes no token, so an
// agent may have any number of payments in progress.
type payer struct {
	address   netip.Prefix
	account   uuid.UUID
	wallet    walletAt
	checked   bool // the payment's form, key and signature are in order
	byAddress bool // the address is charged
	byAccount bool
}

// limited returns the 429 of a limit.
func (s *Server) limited(policy policy, wait time.Duration) *problem {
	s.metrics.limited.WithLabelValues(policy.name).Inc()
	return &problem{status: http.StatusTooManyRequests, code: gen.ErrorCodeRateLimited, limit: &policy,
		retryAfter: max(int(math.Ceil(wait.Seconds())), 1),
		message: fmt.Sprintf("too many unpaid calls %s; wait for Retry-After seconds, then send the same request",
			policy.whose)}
}

// writeHeader writes the header fields of draft-ietf-httpapi-ratelimit-headers.
func (p *policy) writeHeader(header http.Header, wait int) {
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", p.name, p.quota, int(p.window.Seconds())))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", p.name, wait))
}

// limitUnpaid limits unpaid calls per address. A call without payment takes a token before its body is read; if the
// address has none left, a paying account may use its own. A call with a payment first goes through the cheap checks,
// so that others cannot use up the tokens of a shared address. If the address has none left, only wallets that settled
// recently get that far.
func (s *Server) limitUnpaid(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		record := recordFrom(c)
		record.payment.address = s.clientAddress(c.Request())
		operation := operationFrom(c)
		if !operation.paid() || !hasPayment(c) {
			if err := s.takeForInquiry(c.Request(), record.payment.address); err != nil {
				return err
			}
			return next(c)
		}
		if wait, empty := s.rates.addresses.empty(record.payment.address); empty && !s.payments.NamesRecentPayer(&operation.Operation, c.Request().Header) {
			return s.limited(s.rates.addresses.policy, wait)
		}
		return s.countPayment(record, next(c))
	}
}

// takeForInquiry takes a token for a call without payment: from its address, or, if that has none left, from its
// account if that account paid recently.
func (s *Server) takeForInquiry(r *http.Request, address netip.Prefix) error {
	if _, ok := s.rates.addresses.take(address); ok {
		return nil
	}
	if account, ok := s.payments.RecentAccount(store.HashKey(r.Header.Get("X-API-KEY"))); ok {
		if wait, ok := s.rates.accounts.take(account); !ok {
			return s.limited(s.rates.accounts.policy, wait)
		}
		return nil
	}
	wait, _ := s.rates.addresses.empty(address)
	return s.limited(s.rates.addresses.policy, wait)
}

// limitPayments rejects a payment that passed the local checks if its account or wallet has no token left. The bucket
// of the address does not count for wallets that settled recently, because others may share the address.
func (s *Server) limitPayments(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		record := recordFrom(c)
		if record.attempt == nil {
			return next(c)
		}
		payer, wallet := &record.payment, record.attempt.Payer()
		payer.checked = true
		payer.wallet = walletAt{evm.HexToAddress(wallet), payer.address}
		if !record.attempt.Genuine() || !s.payments.PaidLately(wallet) {
			payer.byAddress = true
			if wait, empty := s.rates.addresses.empty(payer.address); empty {
				return s.limited(s.rates.addresses.policy, wait)
			}
		}
		if record.caller != nil {
			payer.account, payer.byAccount = record.caller.ID, true
			if wait, empty := s.rates.accounts.empty(payer.account); empty {
				return s.limited(s.rates.accounts.policy, wait)
			}
		}
		if wait, empty := s.rates.wallets.empty(payer.wallet); empty {
			return s.limited(s.rates.wallets.policy, wait)
		}
		return next(c)
	}
}

// countPayment charges a call with a payment that ended unpaid. A paid call returns the token of its price inquiry to
// the address or the account.
func (s *Server) countPayment(record *record, err error) error {
	payer := &record.payment
	var p *problem
	if err != nil {
		p = problemOf(err)
	}
	switch {
	case p != nil && (p.status == http.StatusTooManyRequests || p.unread || (p.unknown && p.charged)):
		return err // an unavailable database is not the caller's fault, nor that a settled payment cannot be delivered yet
	case record.paid || (p != nil && p.charged && !p.redeeming):
		s.rates.addresses.give(payer.address)
		if payer.byAccount {
			s.rates.accounts.give(payer.account)
		}
		return err
	case !payer.checked:
		if wait, ok := s.rates.addresses.take(payer.address); !ok {
			return s.limited(s.rates.addresses.policy, wait)
		}
		return err
	}
	if payer.byAccount {
		s.rates.accounts.charge(payer.account)
	}
	// Somebody else may have sent a payment that is already in the ledger.
	sentBefore := p != nil && knownToLedger(p.code)
	if !sentBefore {
		s.rates.wallets.charge(payer.wallet)
	}
	if payer.byAddress || (sentBefore && !payer.byAccount) {
		s.rates.addresses.charge(payer.address)
	}
	return err
}

// knownToLedger tells whether the code means that the payment is already in the ledger.
func knownToLedger(code gen.ErrorCode) bool {
	return code == gen.ErrorCodePaymentReused || code == gen.ErrorCodePaymentInProgress || code == gen.ErrorCodeProofRequired
}
