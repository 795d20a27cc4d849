package server

import (
	"crypto/sha256"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/gen"
)

// Limits bound what callers may cost that do not pay. A field that is zero has its value of DefaultLimits.
type Limits struct {
	// Calls that are not paid. A paid call takes nothing.
	Address Rate // of a client address: an IPv4 address, or the /64 of an IPv6 address
	Account Rate
	Wallet  Rate // of a wallet at one client address

	WrongTANs int // of a wallet, and of a client address, in ten minutes

	Connections           int // open at a time
	ConnectionsPerAddress int

	// TrustedProxies are believed about the client's address (X-Forwarded-For), and may open any number of connections.
	TrustedProxies []netip.Prefix
}

// Rate is a token bucket.
type Rate struct {
	PerSecond float64
	Burst     int
}

// DefaultLimits are meant for the open Internet. An address is often shared by many agents, so its burst is as large as
// the number of calls that a thousand of them have under way, each of which may have asked its price first. One account
// or wallet has one agent, which does not learn more from refusals by the hundred.
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

// manyBuckets is how many addresses, accounts or wallets are remembered: at about 250 bytes each, 16 MiB at most. Whoever
// is forgotten, the one not seen for longest, starts with a full bucket.
const manyBuckets = 1 << 16

// buckets are the token buckets of one limit.
type buckets[K comparable] struct {
	policy policy
	rate   Rate
	all    *lru.Cache[K, *rate.Limiter]
}

// policy is a limit as the RateLimit header fields tell it.
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

// take takes a token, or tells how long it is until there is one.
func (b *buckets[K]) take(key K) (wait time.Duration, ok bool) {
	bucket := b.of(key)
	if bucket.Allow() {
		return 0, true
	}
	return b.wait(bucket), false
}

// empty tells whether take would fail now.
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

// charge takes a token for what is done already, even if there is none: then the bucket owes it.
func (b *buckets[K]) charge(key K) { b.of(key).ReserveN(time.Now(), 1) }

// give puts a token back. The limiter has no method for that: it takes a negative number, and the bucket holds no more
// than its burst at the next look (TestTokensAreGivenBack).
func (b *buckets[K]) give(key K) {
	if bucket, ok := b.all.Peek(key); ok {
		bucket.ReserveN(time.Now(), -1)
	}
}

// rateLimits count the calls that are not paid.
type rateLimits struct {
	addresses *buckets[netip.Prefix]
	accounts  *buckets[uuid.UUID]
	wallets   *buckets[walletAt]
}

// walletAt is a wallet at a client address. An authorization is public once it has settled, so anybody can send it again:
// whoever does so elsewhere must not use up the tokens of the wallet's owner.
type walletAt struct {
	wallet  common.Address
	address netip.Prefix
}

func newRateLimits(limits Limits) *rateLimits {
	return &rateLimits{
		addresses: newBuckets[netip.Prefix]("address", "from this address", limits.Address),
		accounts:  newBuckets[uuid.UUID]("account", "of this account", limits.Account),
		wallets:   newBuckets[walletAt]("wallet", "by this wallet", limits.Wallet),
	}
}

// payer is who a call with a payment is charged to if it is not paid. While it is under way it takes nothing, so that an
// agent may have any number of payments under way.
type payer struct {
	address   netip.Prefix
	account   uuid.UUID
	keyHash   [sha256.Size]byte // of the account
	wallet    walletAt
	checked   bool // the payment's form, key and signature are in order
	byAddress bool // the address is charged
	byAccount bool
}

// limited is the 429 of a limit.
func (s *Server) limited(policy policy, wait time.Duration) *problem {
	s.metrics.limited.WithLabelValues(policy.name).Inc()
	return &problem{status: http.StatusTooManyRequests, code: gen.ErrorCodeRateLimited, limit: &policy,
		retryAfter: max(int(math.Ceil(wait.Seconds())), 1),
		message: fmt.Sprintf("too many calls %s that were not paid: wait as long as Retry-After says, then send the same request",
			policy.whose)}
}

// tell writes the header fields of draft-ietf-httpapi-ratelimit-headers: the limit, and what is left of it.
func (p *policy) tell(header http.Header, wait int) {
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", p.name, p.quota, int(p.window.Seconds())))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", p.name, wait))
}

// limitUnpaid counts the calls of each address that are not paid. What asks without payment is counted before its body is
// read; where the address has no token left, an account that pays may use its own. What brings a payment gets the checks
// that cost little first, so that nobody at its address can use up its tokens: where the address has none left, only
// wallets that settled lately get as far as that.
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

// takeForInquiry takes the token of a call without a payment, of its address or, where that has none left, of its account
// if that paid lately.
func (s *Server) takeForInquiry(r *http.Request, address netip.Prefix) error {
	if _, ok := s.rates.addresses.take(address); ok {
		return nil
	}
	if account, ok := s.payingKeys.account(r.Header.Get("X-API-KEY")); ok {
		if wait, ok := s.rates.accounts.take(account); !ok {
			return s.limited(s.rates.accounts.policy, wait)
		}
		return nil
	}
	wait, _ := s.rates.addresses.empty(address)
	return s.limited(s.rates.addresses.policy, wait)
}

// limitPayments refuses a payment that is in order as far as the server can see by itself, where its account or wallet has
// no token left. The address is not asked where the wallet settled lately: anybody who shares it can use up its tokens.
func (s *Server) limitPayments(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		record := recordFrom(c)
		if record.attempt == nil {
			return next(c)
		}
		payer, wallet := &record.payment, record.attempt.Payer()
		payer.checked = true
		payer.wallet = walletAt{common.HexToAddress(wallet), payer.address}
		if !record.attempt.Genuine() || !s.payments.PaidLately(wallet) {
			payer.byAddress = true
			if wait, empty := s.rates.addresses.empty(payer.address); empty {
				return s.limited(s.rates.addresses.policy, wait)
			}
		}
		if record.caller != nil {
			payer.account, payer.byAccount = record.caller.ID, true
			copy(payer.keyHash[:], record.caller.KeyHash)
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

// countPayment charges a call with a payment that ended with err, unless it was paid. One that was paid gives back the
// token that its price inquiry took, of the address or of the account.
func (s *Server) countPayment(record *record, err error) error {
	payer := &record.payment
	var p *problem
	if err != nil {
		p = problemOf(err)
	}
	switch {
	case record.paid || (p != nil && p.charged && !p.redeeming):
		s.rates.addresses.give(payer.address)
		if payer.byAccount {
			s.payingKeys.paid(payer.keyHash, payer.account)
			s.rates.accounts.give(payer.account)
		}
		return err
	case p != nil && p.status == http.StatusTooManyRequests:
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
	// A payment that the ledger knows already was perhaps sent by somebody else than its wallet.
	sentBefore := p != nil && knownToLedger(p.code)
	if !sentBefore {
		s.rates.wallets.charge(payer.wallet)
	}
	if payer.byAddress || (sentBefore && !payer.byAccount) {
		s.rates.addresses.charge(payer.address)
	}
	return err
}

// knownToLedger tells whether the code says that the ledger knows the payment already.
func knownToLedger(code gen.ErrorCode) bool {
	return code == gen.ErrorCodePaymentReused || code == gen.ErrorCodePaymentInProgress || code == gen.ErrorCodeProofRequired
}
