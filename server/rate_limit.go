package server

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/labstack/echo/v4"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/discovery"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402/evm"
)

const (
	// manyBuckets is how many addresses, accounts or wallets are remembered: 20 MiB at most with the shared ones, at about 250 bytes each.
	manyBuckets   = 1 << 16
	sharedBuckets = 1 << 14 // further ones, of networks
	bucketTries   = 8       // how many buckets are looked at to make room for another

	// What costs a further token if the response is not paid for: time of the handler, and bytes of the body, or of a repeated response,
	// which take a millisecond to decode and check, or to make. A change is tried in the database, which can take a millisecond for the few
	// ids that so many bytes hold.
	workPerToken   = 5 * time.Millisecond
	bodyPerToken   = 32 << 10
	changePerToken = 256
	// documentPerToken is how many bytes of a document cost a further token. An address gets the contract 40 times at once, and compressed 240
	// times.
	documentPerToken = 8 << 10
)

// policy describes a limit for the RateLimit header fields.
type policy struct {
	name   string // of the header fields and of the metric: address, account, wallet, tan
	quota  int
	window time.Duration
	whose  string // for the message
	remedy string // what to do then, for the message
}

// exceeded returns the 429 of the limit.
func (p policy) exceeded(wait time.Duration) *problem {
	return &problem{status: http.StatusTooManyRequests, code: gen.ErrorCodeRateLimited, limit: &p,
		retryAfter: max(int(math.Ceil(wait.Seconds())), 1),
		message:    fmt.Sprintf("too many unpaid calls %s; wait for Retry-After seconds, then %s", p.whose, p.remedy)}
}

// writeHeader writes the header fields of draft-ietf-httpapi-ratelimit-headers.
func (p policy) writeHeader(header http.Header, wait int) {
	header.Set("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", p.name, p.quota, int(p.window.Seconds())))
	header.Set("RateLimit", fmt.Sprintf("%q;r=0;t=%d", p.name, wait))
}

// buckets are the token buckets of one limit. A bucket that is full again is like a new one, so it makes room for others. One that is not
// full stays: else whoever used it up could drop it by calling from many addresses. While there is no room, newcomers share a bucket.
type buckets[K comparable] struct {
	policy policy
	rate   Rate
	wider  func(K) K // whose bucket newcomers share; all others share the zero key

	mu  sync.Mutex
	all *simplelru.LRU[K, *rate.Limiter]
}

func newBuckets[K comparable](name, whose string, limit Rate, wider func(K) K) *buckets[K] {
	all, _ := simplelru.NewLRU[K, *rate.Limiter](manyBuckets+sharedBuckets+1, nil) // fails for sizes below 1
	window := time.Duration(math.Ceil(float64(limit.Burst)/limit.PerSecond)) * time.Second
	return &buckets[K]{policy: policy{name, limit.Burst, window, whose, "send the same request"}, rate: limit, wider: wider, all: all}
}

// find returns the bucket of a key, or the one that it shares. A new one is added, or nil is returned.
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

// take takes a token, or returns the 429.
func (b *buckets[K]) take(key K) error {
	if b.find(key, true).Allow() {
		return nil
	}
	return b.policy.exceeded(b.wait(key))
}

// check returns the 429 if there is no token, and takes none.
func (b *buckets[K]) check(key K) error {
	if wait := b.wait(key); wait > 0 {
		return b.policy.exceeded(wait)
	}
	return nil
}

// wait returns how long to wait for a token; 0 if there is one.
func (b *buckets[K]) wait(key K) time.Duration {
	bucket := b.find(key, false)
	if bucket == nil {
		return 0
	}
	return time.Duration(max(0, 1-bucket.Tokens()) / b.rate.PerSecond * float64(time.Second))
}

// charge takes tokens for a finished call, at most a full bucket. The bucket may become negative.
func (b *buckets[K]) charge(key K, tokens int) {
	b.find(key, true).ReserveN(time.Now(), min(tokens, b.rate.Burst))
}

// give returns a token. The limiter has no method for that, but it accepts a negative number, and a bucket never holds
// more than its burst (TestTokensAreGivenBack).
func (b *buckets[K]) give(key K) {
	if bucket := b.find(key, false); bucket != nil {
		bucket.ReserveN(time.Now(), -1)
	}
}

// siteFactor is how many times the tokens of one address an IPv6 /48 has, which may be one customer's site with 65,536 addresses.
const siteFactor = 10

// addressBuckets are the buckets of client addresses. An IPv6 address takes its tokens from the bucket of its /48, too.
type addressBuckets struct {
	*buckets[netip.Prefix]
	sites *buckets[netip.Prefix]
}

func newAddressBuckets(limit Rate) addressBuckets {
	site := Rate{PerSecond: siteFactor * limit.PerSecond, Burst: siteFactor * limit.Burst}
	return addressBuckets{newBuckets("address", "from this address", limit, widerNetwork),
		newBuckets("address", "from this network", site, widerNetwork)}
}

// each calls what with the bucket of the address, and then with that of its site, until one returns an error.
func (a addressBuckets) each(address netip.Prefix, what func(b *buckets[netip.Prefix], key netip.Prefix) error) error {
	if err := what(a.buckets, address); err != nil || !address.Addr().Is6() {
		return err
	}
	return what(a.sites, widerNetwork(address))
}

func (a addressBuckets) take(address netip.Prefix) error {
	return a.each(address, (*buckets[netip.Prefix]).take)
}

func (a addressBuckets) check(address netip.Prefix) error {
	return a.each(address, (*buckets[netip.Prefix]).check)
}

func (a addressBuckets) charge(address netip.Prefix, tokens int) {
	_ = a.each(address, func(b *buckets[netip.Prefix], key netip.Prefix) error { b.charge(key, tokens); return nil })
}

func (a addressBuckets) give(address netip.Prefix) {
	_ = a.each(address, func(b *buckets[netip.Prefix], key netip.Prefix) error { b.give(key); return nil })
}

// rateLimits count unpaid calls.
type rateLimits struct {
	addresses addressBuckets
	recent    addressBuckets // for recent payers at an address without tokens; nobody is exempt from it
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
	ofNetwork := func(w walletAt) walletAt { return walletAt{address: widerNetwork(w.address)} } // wallets cost nothing
	return &rateLimits{
		addresses: newAddressBuckets(limits.Address),
		recent:    newAddressBuckets(limits.Address),
		accounts:  newBuckets("account", "of this account", limits.Account, func(uuid.UUID) uuid.UUID { return uuid.Nil }),
		wallets:   newBuckets("wallet", "by this wallet", limits.Wallet, ofNetwork),
	}
}

// payer says which buckets are charged if a call with a payment ends unpaid. A call in progress takes no token, so an
// agent may have any number of payments in progress.
type payer struct {
	address   netip.Prefix
	account   uuid.UUID // charged if it is known
	wallet    walletAt
	worked    time.Duration // what the handler took to make a response
	body      int           // tokens that the body takes
	repeated  int           // bytes of a stored response that it gets again
	checked   bool          // the payment's form, key and signature are in order
	byAddress bool          // the address is charged
	admitted  bool          // as a recent payer, at an address without tokens
	public    bool          // admitted by a signature, which can be public
}

// measure measures the handler of a read, which runs before the payment is certain. A rejected call costs the same whatever it took: on a
// busy server that says little about the caller. Other handlers wait for locks.
func (p *payer) measure(started time.Time, err error) {
	if err == nil {
		p.worked += time.Since(started)
	}
}

// tokens is what a call that ended unpaid takes.
func (p *payer) tokens() int {
	return 1 + int(p.worked/workPerToken) + p.body + p.repeated/bodyPerToken
}

// bodyTokens is what a body of so many bytes takes.
func (o *operation) bodyTokens(bytes int) int {
	if o.handler.alone != nil {
		return bytes / changePerToken
	}
	return bytes / bodyPerToken
}

// takeToken takes a token for a call without payment: of the address, or, if that has none left, of an account that paid lately.
func (s *Server) takeToken(c echo.Context) error {
	payer := &recordFrom(c).payment
	payer.address = s.clientAddress(c.Request())
	err := s.rates.addresses.take(payer.address)
	if err == nil {
		return nil
	}
	account, ok := s.payments.RecentAccount(store.HashKey(c.Request().Header.Get("X-API-KEY")))
	if !ok {
		return err
	}
	payer.account = account
	return s.rates.accounts.take(account)
}

// publish returns a document. It takes further tokens for its size, before it is sent: many can be read at the same time.
func (s *Server) publish(document discovery.Document) echo.HandlerFunc {
	return func(c echo.Context) error {
		payer := recordFrom(c).payment
		document.Serve(c.Response(), c.Request(), func(bytes int) {
			if payer.account != uuid.Nil {
				s.rates.accounts.charge(payer.account, bytes/documentPerToken)
			} else {
				s.rates.addresses.charge(payer.address, bytes/documentPerToken)
			}
		})
		return nil
	}
}

// limitUnpaid limits unpaid calls per address. A call without payment takes a token before its body is read; if the address has none left,
// a paying account may use its own. A call with a payment first goes through the cheap checks, so that others cannot use up the tokens of
// a shared address. If the address has none left, only recent payers get that far.
func (s *Server) limitUnpaid(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		record, operation, header := recordFrom(c), operationFrom(c), c.Request().Header
		if !operation.paid() || !hasPayment(c) {
			if err := s.takeToken(c); err != nil {
				return err
			}
			return next(c)
		}
		payer := &record.payment
		payer.address = s.clientAddress(c.Request())
		if exceeded := s.rates.addresses.check(payer.address); exceeded != nil {
			if err := s.admitRecentPayer(operation, header, payer, exceeded); err != nil {
				return err
			}
		}
		err := next(c)
		return s.countPayment(record, !hungUp(c) && !s.store.Responds(), err)
	}
}

// admitRecentPayer admits a call with a payment at an address without tokens if its account paid lately, which the API key proves, or if
// its payment is signed by a wallet or for a payment channel that paid lately. Such a signature can be public, and anybody can send it
// again: those calls share one bucket of the address, from which payments that are signed otherwise take a token too.
func (s *Server) admitRecentPayer(operation *operation, header http.Header, payer *payer, exceeded error) error {
	if account, ok := s.payments.RecentAccount(store.HashKey(header.Get("X-API-KEY"))); ok {
		payer.account, payer.admitted = account, true
		return s.rates.accounts.check(account)
	}
	if err := s.rates.recent.check(payer.address); err != nil {
		return err
	}
	if !s.payments.SignedByRecentPayer(&operation.Operation, header) {
		s.rates.recent.charge(payer.address, 1) // payments are long
		return exceeded
	}
	payer.admitted, payer.public = true, true
	return nil
}

// limitPayments rejects a payment that passed the local checks if its account or wallet has no token left. The bucket
// of the address does not count for wallets that settled recently, because others may share the address.
func (s *Server) limitPayments(c echo.Context) error {
	record := recordFrom(c)
	if record.attempt == nil {
		return nil
	}
	payer := &record.payment
	payer.checked = true
	payer.wallet = walletAt{evm.HexToAddress(record.attempt.Signer()), payer.address}
	if !record.attempt.Genuine() || !s.payments.PaidLately(record.attempt.Payer()) {
		payer.byAddress = true
		if err := s.rates.addresses.check(payer.address); err != nil {
			return err
		}
	}
	if record.caller != nil {
		payer.account = record.caller.ID
		if err := s.rates.accounts.check(payer.account); err != nil {
			return err
		}
	}
	return s.rates.wallets.check(payer.wallet)
}

// countPayment charges a call with a payment that ended unpaid. A paid call returns the token of its price inquiry to
// the address or the account. Down reports that the database does not respond and the caller was told so. If it does respond, it may be
// the calls of this caller that others wait for.
func (s *Server) countPayment(record *record, down bool, err error) error {
	payer := &record.payment
	p := &problem{}
	if err != nil {
		p = problemOf(err)
	}
	tokens := payer.tokens()
	refused, ok := errors.AsType[*payment.Error](err)
	limited := p.status == http.StatusTooManyRequests && !ok // a refund that is too soon counts as any refused payment
	switch {
	case p == errDisplaced || p == errCrowded: // by requests of its own address, most likely
		s.rates.addresses.charge(payer.address, 1)
		return err
	case p.unread && down, p.unknown && p.charged:
		return err // an unavailable database is not the caller's fault, nor that a settled payment cannot be delivered yet
	case limited && !payer.admitted: // its body was checked all the same: who goes on soon is refused before that
		s.rates.addresses.charge(payer.address, tokens)
		return err
	case record.paid, p.charged && !p.redeeming:
		s.rates.addresses.give(payer.address)
		if payer.account != uuid.Nil {
			s.rates.accounts.give(payer.account)
		}
		return err
	}
	if payer.account != uuid.Nil {
		s.rates.accounts.charge(payer.account, tokens)
	}
	if payer.public {
		s.rates.recent.charge(payer.address, tokens)
	}
	switch {
	case limited:
		return err
	case !payer.checked:
		exceeded := s.rates.addresses.check(payer.address)
		if !payer.admitted { // concurrent calls may all have seen the last token; each takes one, so that the bucket becomes negative
			s.rates.addresses.charge(payer.address, tokens)
		}
		if p.unread { // a 429 would say that nothing was charged
			return err
		}
		return cmp.Or(exceeded, err)
	}
	// Somebody else may have sent a payment that is already in the ledger, or a claimed voucher, which is public.
	sentBefore := ok && refused.Correction || p.code == gen.ErrorCodePaymentReused || p.code == gen.ErrorCodePaymentInProgress ||
		p.code == gen.ErrorCodeProofRequired
	if !sentBefore {
		s.rates.wallets.charge(payer.wallet, tokens)
	}
	if payer.byAddress || sentBefore && payer.account == uuid.Nil {
		s.rates.addresses.charge(payer.address, tokens)
	}
	return err
}
