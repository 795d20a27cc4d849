package agent

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"
)

// DefaultLimit is the daily limit of a new wallet, in atomic units of the token (1,000,000 are 1 USDC).
const DefaultLimit uint64 = 1_000_000

// DearPrice is the price above which a call is confirmed: group chats, channels and accounts cost more.
const DearPrice uint64 = 100_000

// Day is what may be spent on a UTC day, and what is spent or reserved of that, in atomic units. Reserved is the part of Spent for calls
// that were refused and whose payments can still be taken.
type Day struct{ Limit, Spent, Reserved uint64 }

// String says what is spent, and what is reserved.
func (d Day) String() string {
	text := "today " + USD(d.Spent-d.Reserved) + " of " + USD(d.Limit)
	if d.Reserved > 0 {
		text += ", " + USD(d.Reserved) + " reserved for refused calls"
	}
	return text
}

func (d Day) Left() uint64 { return d.Limit - min(d.Spent, d.Limit) }

const codeLimit = "limit"

func (d Day) exceeded(price uint64) error {
	return failf(ExitLimit, codeLimit, "wallet limit", "the call costs %s USD, and %s are left of the daily limit (%s); it was not made. "+
		"Ask a person: the limit is theirs, and a new day begins at 00:00 UTC", USD(price), USD(d.Left()), d)
}

func (l *Ledger) Today(ctx context.Context) (today Day, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		today, err = l.counted(ctx, tx)
		return err
	})
	return today, err
}

// SetLimit replaces the daily limit. 0 stops all payments but that for a new API key.
func (l *Ledger) SetLimit(ctx context.Context, limit uint64) error {
	return l.transact(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, limitSetting, limit) })
}

// ConfirmDear is the failure of a call that is dear and that nobody has confirmed.
func ConfirmDear(operation string, price uint64) error {
	f := failf(ExitLimit, codeConfirm, "", "%s costs %s USD, and calls above %s USD must be confirmed; nothing was paid", operation,
		USD(price), USD(DearPrice))
	f.Question, f.dear = "Pay "+USD(price)+" USD for "+operation+"?", price
	return f
}

// affords returns a failure if the daily limit or the wallet has less than a price: nobody is asked about what cannot be paid.
func (a *Agent) affords(ctx context.Context, price uint64) error {
	today, err := a.ledger.Today(ctx)
	if err != nil || price > today.Left() {
		return cmp.Or(err, today.exceeded(price))
	}
	has, unknown := a.Balance(ctx)
	deposited, err := a.Deposited()
	if has += deposited; unknown == nil && err == nil && has < price {
		return NoMoney(price, &has, a.address, a.terms.agreed().Network)
	}
	return nil
}

const codeConfirm = "confirmation_needed"

// ErrNoChain means that the balance cannot be read.
var ErrNoChain = failf(ExitError, "no_blockchain", "", "no endpoint of the blockchain is known; init takes one with --rpc-url")

var errChainDown = &Failure{Exit: ExitError, Code: "no_blockchain", Charged: new(false), Retryable: true,
	Message: "the endpoint of the blockchain does not respond; try again later"}

// Balance returns what the wallet has on the blockchain, without deposits in payment channels, in atomic units.
func (a *Agent) Balance(ctx context.Context) (uint64, error) {
	return a.ledger.balance(ctx, a.terms.agreed().Asset)
}

func (l *Ledger) balance(ctx context.Context, asset string) (uint64, error) {
	if l.chain == nil || asset == "" {
		return 0, ErrNoChain
	}
	ctx, cancel := context.WithTimeout(ctx, chainTime)
	defer cancel()
	has, err := l.chain.Balance(ctx, asset, l.address)
	if err != nil {
		return 0, errChainDown
	}
	return has, nil
}

// checkMoney returns a failure if the blockchain shows that the wallet has less than an amount. So nothing is signed that cannot be taken
// now and could be later.
func (l *Ledger) checkMoney(ctx context.Context, amount uint64, asset, network string) error {
	has, err := l.balance(ctx, asset)
	if err != nil || has >= amount {
		return nil //nolint:nilerr // then the server refuses the payment
	}
	return NoMoney(amount, &has, l.address, network)
}

// NoMoney is the failure of a call for which the wallet has too little money. balance is nil if it is not known.
func NoMoney(price uint64, balance *uint64, address, network string) error {
	has := "too little"
	if balance != nil {
		has = USD(*balance)
	}
	return failf(ExitNoMoney, "no_money", "wallet balance", "the wallet has %s USDC and the call costs %s; nothing was charged. "+
		"Ask a person to send USDC on %s to %s, then make the same call again", has, USD(price), network, address)
}

// orNoMoney returns the failure of a wallet without money in place of a refusal of the server for that reason.
func (a *Agent) orNoMoney(ctx context.Context, err error, price uint64) error {
	if f, ok := errors.AsType[*Failure](err); !ok || f.Status != http.StatusPaymentRequired || !strings.Contains(f.reason, "insufficient") {
		return err
	}
	var known *uint64
	if has, err := a.Balance(context.WithoutCancel(ctx)); err == nil {
		known = &has
	}
	return NoMoney(price, known, a.address, a.terms.agreed().Network)
}
