package payment

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// What callers cause at the facilitator and at the blockchain endpoint, although they may never pay, has one budget. A call takes tokens
// when it first needs one of the two, and gives them back when it is paid. An exact payment by a wallet that paid lately needs neither
// before its settlement, and an account that paid lately has a share of its own beside the budget, so strangers cannot stop them.
const (
	// strangersPerSecond and strangersBurst are the tokens for all clients. Facilitators and endpoints have limits, which settlements need.
	strangersPerSecond = 10
	strangersBurst     = 100
	// sharePerSecond and shareBurst are those of a client: an account that paid lately, or an address, which is a part of the budget. An IPv6
	// /48 has as many as siteShares addresses. A client that has used up its share leaves half of the burst to others.
	sharePerSecond = 0.2
	shareBurst     = 12
	siteShares     = 10
	// chainCost is what a call costs that needs the endpoint, facilitatorCost what one costs that needs the facilitator too.
	chainCost       = 1
	facilitatorCost = 4
	// refusedFor is how long a refusal is remembered, and maxRefused how many are: about 3 MB.
	refusedFor = 30 * time.Second
	maxRefused = 10_000
	// maxRates bounds the token buckets of one kind to about 2 MB.
	maxRates = 10_000
)

type strangers struct {
	all           *rate.Limiter
	shares, sites Rates
	refused       Recent[string, string] // what was refused, and why: see Engine.Verified
}

func newStrangers() *strangers {
	return &strangers{
		all:     rate.NewLimiter(strangersPerSecond, strangersBurst),
		shares:  NewRates(sharePerSecond, shareBurst),
		sites:   NewRates(siteShares*sharePerSecond, siteShares*shareBurst),
		refused: NewRecent[string, string](maxRefused),
	}
}

// share is the token bucket of a client.
type share struct {
	rates  Rates
	client string
}

// sharesOf are those of the client of an attempt. Certain reports whether it may use them although others have used up the budget.
func (e *Engine) sharesOf(a *Attempt) (shares []share, certain bool) {
	if a.Caller != nil {
		if account, ok := e.RecentAccount(a.Caller.KeyHash); ok {
			return []share{{e.strangers.shares, account.String()}}, true
		}
	}
	shares = []share{{e.strangers.shares, a.Address.String()}}
	if a.Address.Addr().Is6() {
		site, _ := a.Address.Addr().Prefix(48)
		shares = append(shares, share{e.strangers.sites, site.String()})
	}
	return shares, false
}

// take takes tokens. It returns how to give them back, or how long to wait for them.
func (s *strangers) take(shares []share, certain bool, tokens int) (giveBack func(), wait time.Duration) {
	taken, left := []share{}, 0 // to others
	giveShares := func() {
		for _, one := range taken {
			one.rates.give(one.client, tokens)
		}
		taken = nil
	}
	for _, one := range shares {
		if wait = one.rates.Take(one.client, tokens); wait > 0 {
			giveShares()
			left = strangersBurst / 2
			break
		}
		taken = append(taken, one)
	}
	if certain && wait == 0 {
		return giveShares, 0
	}
	if s.all.Tokens() < float64(left+tokens) || !s.all.AllowN(time.Now(), tokens) {
		giveShares()
		return nil, max(wait, time.Second)
	}
	return func() { giveShares(); s.all.ReserveN(time.Now(), -tokens) }, 0
}

// takeTokens takes the tokens of a call that needs the blockchain endpoint, or the facilitator too, before it is certain that it pays: so
// many in all, however often it needs them. The error is a 429.
func (e *Engine) takeTokens(a *Attempt, tokens int) *Error {
	if tokens -= a.taken; tokens <= 0 {
		return nil
	}
	shares, certain := e.sharesOf(a)
	giveBack, wait := e.strangers.take(shares, certain, tokens)
	if wait > 0 {
		// A copy of the payment may be settling.
		return &Error{Code: CodeLimited, Undecided: true, RetryAfter: int(math.Ceil(wait.Seconds())),
			Message: "too many calls that may not pay need the blockchain or the payment facilitator now; wait for Retry-After seconds, then " +
				Again}
	}
	a.taken += tokens
	a.giveBack = append(a.giveBack, giveBack)
	return nil
}

// Rates are token buckets by client.
type Rates struct {
	perSecond rate.Limit
	burst     int
	buckets   Recent[string, *rate.Limiter]
}

// NewRates makes the token buckets of at most 10,000 clients.
func NewRates(perSecond rate.Limit, burst int) Rates {
	return Rates{perSecond, burst, NewRecent[string, *rate.Limiter](maxRates)}
}

// Take takes tokens, or returns how long it takes until there are so many.
func (r Rates) Take(client string, tokens int) time.Duration {
	bucket, ok := r.buckets.Get(client)
	if !ok {
		bucket = rate.NewLimiter(r.perSecond, r.burst)
		full := float64(r.burst) / float64(r.perSecond) * float64(time.Second)
		r.buckets.Add(client, bucket, time.Duration(full))
	}
	taken := bucket.ReserveN(time.Now(), tokens)
	if taken.Delay() > 0 {
		defer taken.Cancel()
	}
	return taken.Delay()
}

// give gives tokens back. The limiter has no method for that, but it accepts a negative number, and a bucket never holds more than its
// burst.
func (r Rates) give(client string, tokens int) {
	if bucket, ok := r.buckets.Get(client); ok {
		bucket.ReserveN(time.Now(), -tokens)
	}
}

// refusalOf names what the refusal of a payment is remembered by: the signed payment, and a smart wallet at an address, since anybody can
// name any smart wallet; "" if the payer is none.
func (a *Attempt) refusalOf() (signed, wallet string) {
	hash := a.signatureHash()
	if !a.Conclusive {
		wallet = a.Payer() + " at " + a.Address.String()
	}
	return a.Payer() + " " + a.Nonce + " " + string(hash[:]), wallet
}
