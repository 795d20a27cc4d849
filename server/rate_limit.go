package server

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/discovery"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402/evm"
)

const (
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

// rateLimits count unpaid calls.
type rateLimits struct {
	addresses edge.AddressBuckets
	recent    edge.AddressBuckets // for recent payers at an address without tokens; nobody is exempt from it
	accounts  *edge.Buckets[uuid.UUID]
	wallets   *edge.Buckets[walletAt]
}

// walletAt is a wallet at a client address. A settled authorization is public and can be replayed by anybody. A replay
// from another address must not use up the tokens of the wallet's owner.
type walletAt struct {
	wallet  evm.Address
	address netip.Prefix
}

func newRateLimits(limits edge.Limits) *rateLimits {
	ofNetwork := func(w walletAt) walletAt { return walletAt{address: edge.WiderNetwork(w.address)} } // wallets cost nothing
	return &rateLimits{
		addresses: edge.NewAddressBuckets(limits.Address),
		recent:    edge.NewAddressBuckets(limits.Address),
		accounts:  edge.NewBuckets("account", "of this account", limits.Account, func(uuid.UUID) uuid.UUID { return uuid.Nil }),
		wallets:   edge.NewBuckets("wallet", "by this wallet", limits.Wallet, ofNetwork),
	}
}

// payerBuckets says which buckets are charged if a call with a payment ends unpaid. A call in progress takes no token, so an
// agent may have any number of payments in progress.
type payerBuckets struct {
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
func (p *payerBuckets) measure(started time.Time, err error) {
	if err == nil {
		p.worked += time.Since(started)
	}
}

// tokens is what a call that ended unpaid takes.
func (p *payerBuckets) tokens() int {
	return 1 + int(p.worked/workPerToken) + p.body + p.repeated/bodyPerToken
}

// bodyTokens is what a body of so many bytes takes.
func (o *operation) bodyTokens(bytes int) int {
	if o.handler.transacted != nil {
		return bytes / changePerToken
	}
	return bytes / bodyPerToken
}

// takeToken takes a token for a call without payment: of the address, or, if that has none left, of an account that paid lately.
func (s *Server) takeToken(c echo.Context) error {
	buckets := &recordFrom(c).buckets
	buckets.address = edge.RequestOf(c).Address()
	err := s.rates.addresses.Take(buckets.address)
	if err == nil {
		return nil
	}
	account, ok := s.payments.RecentAccount(store.HashKey(c.Request().Header.Get("X-API-KEY")))
	if !ok {
		return err
	}
	buckets.account = account
	return s.rates.accounts.Take(account)
}

// publish returns a document. It takes further tokens for its size, before it is sent: many can be read at the same time.
func (s *Server) publish(document discovery.Document) echo.HandlerFunc {
	return func(c echo.Context) error {
		buckets := recordFrom(c).buckets
		document.Serve(c.Response(), c.Request(), func(bytes int) {
			if buckets.account != uuid.Nil {
				s.rates.accounts.Charge(buckets.account, bytes/documentPerToken)
			} else {
				s.rates.addresses.Charge(buckets.address, bytes/documentPerToken)
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
		buckets := &record.buckets
		buckets.address = edge.RequestOf(c).Address()
		if exceeded := s.rates.addresses.Check(buckets.address); exceeded != nil {
			if err := s.admitRecentPayer(operation, header, buckets, exceeded); err != nil {
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
func (s *Server) admitRecentPayer(operation *operation, header http.Header, buckets *payerBuckets, exceeded error) error {
	if account, ok := s.payments.RecentAccount(store.HashKey(header.Get("X-API-KEY"))); ok {
		buckets.account, buckets.admitted = account, true
		return s.rates.accounts.Check(account)
	}
	if err := s.rates.recent.Check(buckets.address); err != nil {
		return err
	}
	if !s.payments.SignedByRecentPayer(&operation.Operation, header) {
		s.rates.recent.Charge(buckets.address, 1) // payments are long
		return exceeded
	}
	buckets.admitted, buckets.public = true, true
	return nil
}

// limitPayments rejects a payment that passed the local checks if its account or wallet has no token left. The bucket
// of the address does not count for wallets that settled recently, because others may share the address.
func (s *Server) limitPayments(c echo.Context) error {
	record := recordFrom(c)
	buckets := &record.buckets
	if record.attempt == nil || buckets.checked && record.attempt.ValidBefore.IsZero() { // a voucher that has waited was checked before
		return nil
	}
	buckets.checked = true
	buckets.wallet = walletAt{evm.HexToAddress(record.attempt.Signer()), buckets.address}
	if !record.attempt.Genuine() || !s.payments.PaidLately(record.attempt.Payer()) {
		buckets.byAddress = true
		if err := s.rates.addresses.Check(buckets.address); err != nil {
			return err
		}
	}
	if record.caller != nil {
		buckets.account = record.caller.ID
		if err := s.rates.accounts.Check(buckets.account); err != nil {
			return err
		}
	}
	return s.rates.wallets.Check(buckets.wallet)
}

// countPayment charges a call with a payment that ended unpaid. A paid call returns the token of its price inquiry to
// the address or the account. Down reports that the database does not respond and the caller was told so. If it does respond, it may be
// the calls of this caller that others wait for.
func (s *Server) countPayment(record *record, down bool, err error) error {
	buckets := &record.buckets
	p := &problem{}
	if err != nil {
		p = problemOf(err)
	}
	tokens := buckets.tokens()
	refused, ok := errors.AsType[*payment.Error](err)
	limited := p.status == http.StatusTooManyRequests && !ok // a refund that is too soon counts as any refused payment
	switch {
	case errors.Is(err, edge.ErrDisplaced) || errors.Is(err, edge.ErrCrowded): // by requests of its own address, most likely
		s.rates.addresses.Charge(buckets.address, 1)
		return err
	case p.unread && down, p.unknown && p.charged:
		return err // an unavailable database is not the caller's fault, nor that a settled payment cannot be delivered yet
	case limited && !buckets.admitted: // its body was checked all the same: who goes on soon is refused before that
		s.rates.addresses.Charge(buckets.address, tokens)
		return err
	case record.paid, p.charged && !p.redeeming:
		s.rates.addresses.Give(buckets.address)
		if buckets.account != uuid.Nil {
			s.rates.accounts.Give(buckets.account)
		}
		return err
	}
	if buckets.account != uuid.Nil {
		s.rates.accounts.Charge(buckets.account, tokens)
	}
	if buckets.public {
		s.rates.recent.Charge(buckets.address, tokens)
	}
	switch {
	case limited:
		return err
	case !buckets.checked:
		exceeded := s.rates.addresses.Check(buckets.address)
		if !buckets.admitted { // concurrent calls may all have seen the last token; each takes one, so that the bucket becomes negative
			s.rates.addresses.Charge(buckets.address, tokens)
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
		s.rates.wallets.Charge(buckets.wallet, tokens)
	}
	if buckets.byAddress || sentBefore && buckets.account == uuid.Nil {
		s.rates.addresses.Charge(buckets.address, tokens)
	}
	return err
}
