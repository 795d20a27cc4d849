package agent

import (
	"context"
	"database/sql"
	"time"

	"github.com/parley-chat/parley/x402"
)

// Deposits into payment channels have the limit of the day too. The server can take of a deposit only what vouchers allow, but until it
// refunds the rest, or the wallet withdraws it, that is locked. So a deposit counts for a day, or until the blockchain shows that it is
// no longer in the channel. What a server says about that does not count.

// Chain reads from the blockchain what became of payments and of deposits. [x402.Chain] does.
type Chain interface {
	Authorizations
	Channel(ctx context.Context, id string) (x402.Channel, time.Time, error)
	// Balance returns what an address has of a token, in atomic units.
	Balance(ctx context.Context, asset, address string) (uint64, error)
}

// Left implements [client.Budget].
func (l *Ledger) Left(ctx context.Context) (left uint64, err error) {
	left, asks, err := l.left(ctx)
	if err == nil && l.lookAt(ctx, asks) {
		left, _, err = l.left(ctx)
	}
	return left, err
}

// left returns what a deposit may lock, and the channels to look at because deposits leave less than payments do.
func (l *Ledger) left(ctx context.Context) (left uint64, asks []string, err error) {
	var network string // read before the transaction, because reading it is one
	if l.chain != nil {
		network = l.network()
	}
	err = l.transact(ctx, func(tx *sql.Tx) error {
		today, err := l.counted(ctx, tx, "")
		if err != nil {
			return err
		}
		locked, err := l.countedDeposits(ctx, tx)
		if err == nil && locked > today.Spent && l.chain != nil {
			asks, err = l.stale(ctx, tx, network)
		}
		today.Spent = max(today.Spent, locked)
		left = today.Left()
		return err
	})
	return left, asks, err
}

// firstDeposit is what a registration may deposit in addition to the daily limit, so that there is room for the first day.
const firstDeposit = maxDeposit

// deposit is what a payment locked in a channel, and what the blockchain showed of the channel.
type deposit struct {
	channel, operation string
	amount, balance    uint64
	settled            bool // the blockchain showed the channel when the deposit could not arrive any more
}

// countedDeposits returns what deposits of the last day have locked at most. Those whose validity has ended have arrived or never will, so
// that together they lock no more than what the blockchain shows in their channel after that.
func (l *Ledger) countedDeposits(ctx context.Context, tx *sql.Tx) (sum uint64, err error) {
	deposits, err := collect(ctx, tx, func(row *sql.Rows, d *deposit) error {
		return row.Scan(&d.channel, &d.operation, &d.amount, &d.balance, &d.settled)
	}, `SELECT p.channel, operation, deposit, coalesce(balance, 0), coalesce(valid_before BETWEEN 1 AND chain_time, 0)
		FROM payments p LEFT JOIN balances b ON b.channel = p.channel AND p.channel <> ''
		WHERE NOT released AND deposit > 0 AND p.at >= ? ORDER BY number`, l.today())
	room := uint64(firstDeposit)
	settled := map[string]struct{ all, first, balance uint64 }{} // by channel
	for _, d := range deposits {
		var first uint64
		if isRegistration(d.operation) {
			first = min(d.amount, room)
			room -= first
		}
		if d.settled {
			of := settled[d.channel]
			of.all, of.first, of.balance = of.all+d.amount, of.first+first, d.balance
			settled[d.channel] = of
		} else {
			sum += d.amount - first
		}
	}
	for _, of := range settled {
		locked := min(of.all, of.balance)
		sum += locked - min(locked, of.first)
	}
	return sum, err
}

// lookPause is the time between two looks at a channel.
const lookPause = time.Minute

// stale returns the channels of a network with deposits of the last day whose balance was not read lately.
func (l *Ledger) stale(ctx context.Context, tx *sql.Tx, network string) ([]string, error) {
	return collect(ctx, tx, func(row *sql.Rows, channel *string) error { return row.Scan(channel) }, `
		SELECT DISTINCT channel FROM payments p WHERE deposit > 0 AND channel <> '' AND at >= ? AND network = ?
			AND NOT EXISTS (SELECT 1 FROM balances b WHERE b.channel = p.channel AND b.at > ?)`,
		l.today(), network, micros(l.now().Add(-lookPause)))
}

// lookAt reads the balances of channels, and reports whether there is a new one. What cannot be read stays counted.
func (l *Ledger) lookAt(ctx context.Context, channels []string) (found bool) {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, id := range channels {
		channel, at, err := l.chain.Channel(limited, id)
		if err != nil {
			return found
		}
		found = l.exec(ctx, "INSERT OR REPLACE INTO balances (channel, at, balance, chain_time) VALUES (?, ?, ?, ?)",
			id, micros(l.now()), channel.Balance, at.Unix()) == nil || found
	}
	return found
}
