package server

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
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

// policy describes a limit for the RateLimit header fields.
type policy struct {
	name   string // of the header fields and of the metric: address, account, wallet, tan
	quota  int
	window time.Duration
	whose  string // for the message
}

// payer says which buckets are charged if a call with a payment ends unpaid. A call in progress takes no token, so an
// agent may have any number of payments in progress.
type payer struct {
	address   netip.Prefix
	account   uuid.UUID
	wallet    walletAt
	worked    time.Duration // what the handler took to make a response
	body      int           // bytes that were read
	checked   bool          // the payment's form, key and signature are in order
	byAddress bool          // the address is charged
	byAccount bool
	admitted  bool // as a recent payer, at an address without tokens
	public    bool // admitted by a signature, which can be public
}

// What costs a further token if the response is not paid for: time of the handler, and bytes of the body, which take a millisecond to
// decode and check.
const (
	workPerToken = 5 * time.Millisecond
	bodyPerToken = 32 << 10
)

// measure measures the handler of a read, which runs before the payment is certain. A rejected call costs the same whatever it took, because
// on a busy server that says little about the caller; other handlers wait for locks.
func (p *payer) measure(made *payment.Call) {
	observe(made, func(started time.Time, err error) {
		if err == nil {
			p.worked += time.Since(started)
		}
	})
}

// tokens is what a call that ended unpaid takes.
func (p *payer) tokens() int { return 1 + int(p.worked/workPerToken) + p.body/bodyPerToken }

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
// so that others cannot use up the tokens of a shared address. If the address has none left, only recent payers get that far.
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
		if wait, empty := s.rates.addresses.empty(record.payment.address); empty {
			if err := s.admitRecentPayer(operation, c.Request().Header, &record.payment, wait); err != nil {
				return err
			}
		}
		err := next(c)
		return s.countPayment(record, hungUp(c), err)
	}
}

// admitRecentPayer admits a call with a payment at an address without tokens if its account paid lately, which the API key proves, or if
// its payment is signed by a wallet or for a payment channel that paid lately. Such a signature can be public, and anybody can send it
// again: those calls share one bucket of the address.
func (s *Server) admitRecentPayer(operation *operation, header http.Header, payer *payer, wait time.Duration) error {
	if account, ok := s.payments.RecentAccount(store.HashKey(header.Get("X-API-KEY"))); ok {
		if wait, empty := s.rates.accounts.empty(account); empty {
			return s.limited(s.rates.accounts.policy, wait)
		}
		payer.account, payer.byAccount, payer.admitted = account, true, true
		return nil
	}
	if !s.payments.SignedByRecentPayer(&operation.Operation, header) {
		return s.limited(s.rates.addresses.policy, wait)
	}
	if wait, empty := s.rates.recent.empty(payer.address); empty {
		return s.limited(s.rates.recent.policy, wait)
	}
	payer.admitted, payer.public = true, true
	return nil
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
		payer.wallet = walletAt{evm.HexToAddress(record.attempt.Signer()), payer.address}
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
// the address or the account. A caller that hung up cannot tell what its call came to, and pays for the work in tokens.
func (s *Server) countPayment(record *record, hungUp bool, err error) error {
	payer := &record.payment
	var p *problem
	if err != nil {
		p = problemOf(err)
	}
	switch {
	case p == errDisplaced || p == errCrowded: // by requests of its own address, most likely
		s.rates.addresses.charge(payer.address, 1)
		return err
	case p != nil && (p.unread && !hungUp || p.unknown && p.charged):
		return err // an unavailable database is not the caller's fault, nor that a settled payment cannot be delivered yet
	case p != nil && p.status == http.StatusTooManyRequests && !payer.admitted:
		return err
	case record.paid || (p != nil && p.charged && !p.redeeming):
		s.rates.addresses.give(payer.address)
		if payer.byAccount {
			s.rates.accounts.give(payer.account)
		}
		return err
	}
	tokens := payer.tokens()
	if payer.byAccount {
		s.rates.accounts.charge(payer.account, tokens)
	}
	if payer.public {
		s.rates.recent.charge(payer.address, tokens)
	}
	switch {
	case p != nil && p.status == http.StatusTooManyRequests:
		return err
	case !payer.checked:
		wait, empty := s.rates.addresses.empty(payer.address)
		if !payer.admitted { // concurrent calls may all have seen the last token; each takes one, so that the bucket becomes negative
			s.rates.addresses.charge(payer.address, tokens)
		}
		if empty {
			return s.limited(s.rates.addresses.policy, wait)
		}
		return err
	}
	// Somebody else may have sent a payment that is already in the ledger.
	sentBefore := p != nil && (knownToLedger(p.code) || corrected(err))
	if !sentBefore {
		s.rates.wallets.charge(payer.wallet, tokens)
	}
	if payer.byAddress || (sentBefore && !payer.byAccount) {
		s.rates.addresses.charge(payer.address, tokens)
	}
	return err
}

// corrected reports whether a voucher did not fit its payment channel. It may be a claimed one, which is public.
func corrected(err error) bool {
	refused, ok := errors.AsType[*payment.Error](err)
	return ok && refused.Correction
}

// knownToLedger reports whether the code means that the payment is already in the ledger.
func knownToLedger(code gen.ErrorCode) bool {
	return code == gen.ErrorCodePaymentReused || code == gen.ErrorCodePaymentInProgress || code == gen.ErrorCodeProofRequired
}
