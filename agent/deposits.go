package agent

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
	"github.com/parley-chat/parley/x402"
)

// Chain reads from the blockchain what became of payments. [x402.Chain] does.
type Chain interface {
	// Authorization returns what became of an exact payment.
	Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (x402.AuthorizationState, error)
	// Balance returns what an address has of a token, in atomic units.
	Balance(ctx context.Context, asset, address string) (uint64, error)
}

const chainTime = 5 * time.Second

// maxDeposit is the most that one deposit into a payment channel locks, in atomic units.
const maxDeposit = 1_000_000

// Left implements [client.Budget]: what a deposit may lock. The deposits of a day have its limit too, whatever the server says of them. A
// registration may deposit maxDeposit in addition, so that there is room for the first day.
func (l *Ledger) Left(ctx context.Context) (left uint64, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		today, err := l.counted(ctx, tx)
		deposits, failed := l.deposits(ctx, tx, today.Limit)
		left = min(today.Left(), deposits.Left())
		return cmp.Or(err, failed)
	})
	if err != nil {
		return 0, err
	}
	agreed, err := loadSetting(ctx, l.db, termsSetting, Agreement{})
	if has, unknown := l.balance(ctx, agreed.Asset); unknown == nil {
		left = min(left, has)
	}
	return left, err
}

func (l *Ledger) deposits(ctx context.Context, tx *sql.Tx, limit uint64) (Day, error) {
	locked, err := value[uint64](ctx, tx, `
		SELECT coalesce(sum(deposit), 0) - min(coalesce(sum(deposit) FILTER (WHERE operation IN (?, ?)), 0), ?)
		FROM payments WHERE NOT released AND at >= ?`, operationRequestAccount, operationCreateAccount, maxDeposit, l.today())
	return Day{Limit: limit, Spent: locked}, err
}

// channels keeps the payment channels in the ledger. It implements [client.PaymentChannelStore].
type channels struct{ *Ledger }

// Lock gives a channel to one call of all processes.
func (c channels) Lock(ctx context.Context, id string) (func(), error) {
	path, err := c.callLock(id)
	if err != nil {
		return nil, err
	}
	lock, err := lockfile.Wait(ctx, path)
	if err != nil {
		return nil, err
	}
	return lock.Release, nil
}

// Load returns a channel. What was signed last is in the payments, also if the process was killed before it could save the channel.
func (c channels) Load(id string) (client.PaymentChannel, error) {
	var channel client.PaymentChannel
	found, err := c.load("WHERE id = ?", id)
	if len(found) > 0 {
		channel = found[0]
	}
	if err != nil {
		return channel, err
	}
	signed, err := value[uint64](context.Background(), c.db,
		"SELECT coalesce(max(cumulative), 0) FROM payments WHERE channel = ? AND signed", id)
	channel.Signed = max(channel.Signed, signed)
	return channel, err
}

func (c channels) Save(id string, channel client.PaymentChannel) error {
	content, err := json.Marshal(channel)
	if err != nil {
		return err
	}
	return c.exec(context.Background(), "INSERT OR REPLACE INTO channels (id, content) VALUES (?, ?)", id, string(content))
}

func (c channels) All() ([]client.PaymentChannel, error) { return c.load("") }

func (c channels) load(where string, arguments ...any) ([]client.PaymentChannel, error) {
	return collect(context.Background(), c.db, scanJSON[client.PaymentChannel], "SELECT content FROM channels "+where, arguments...)
}
