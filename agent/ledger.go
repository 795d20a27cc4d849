package agent

import (
	"cmp"
	"context"
	"database/sql"
	"time"
)

const day = 24 * time.Hour

// clockMargin is how far the clock may be ahead for a while without payments being counted for longer.
const clockMargin = 7 * day

// Ledger records every payment of a wallet before it is signed, and limits what they may cost together. Several processes may use
// it at the same time; a restart forgets nothing.
//
// It counts a payment from before it is signed until the payee cannot take it any more, whatever the server says. So a server that
// lies cannot take more than the limit.
type Ledger struct {
	*state

	now     func() time.Time
	chain   Chain  // may be nil
	address string // of the wallet
	// contract says which responses decide the outcome of a call. Without it each does.
	contract Contract
	// keep stores the secrets of the response to a call elsewhere, before the response is stored without them.
	keep func(ctx context.Context, id string, body []byte) error
}

// OpenLedger returns the ledger in a folder, which it creates if it does not exist.
func OpenLedger(folder string) (*Ledger, error) {
	opened, err := openState(folder)
	if err != nil {
		return nil, err
	}
	return &Ledger{state: opened, now: time.Now, keep: func(context.Context, string, []byte) error { return nil }}, nil
}

func (l *Ledger) today() int64 { return micros(l.now().UTC().Truncate(day)) }

// ofToday selects the payments that count against the daily limit: an account is paid in addition to it.
const ofToday = "NOT released AND p.exempt <> 'account' AND p.at >= ?"

// counted returns the daily limit, and what counts against it. Reserved is for calls that were refused, and for payments in whose place the
// call was paid again: the server could take it all the same, until another call uses its voucher or the payment ends unused.
func (l *Ledger) counted(ctx context.Context, tx *sql.Tx) (Day, error) {
	limit, err := loadSetting(ctx, tx, limitSetting, DefaultLimit)
	spent, failed := value[uint64](ctx, tx, "SELECT coalesce(sum(amount), 0) FROM payments p WHERE "+ofToday, l.today())
	reserved, unknown := value[uint64](ctx, tx, `SELECT coalesce(sum(amount), 0) FROM payments p JOIN calls ON calls.id = p.call
		WHERE (cost = 0 AND calls.signed IS NULL AND status IS NOT NULL OR
			EXISTS (SELECT 1 FROM payments later WHERE later.call = p.call AND later.number > p.number)) AND `+ofToday, l.today())
	return Day{Limit: limit, Spent: spent, Reserved: reserved}, cmp.Or(err, failed, unknown)
}

// isOpen reports whether the outcome of a call is not known. It is not if the file cannot be read.
func (l *Ledger) isOpen(ctx context.Context, id string) bool {
	open, err := value[bool](context.WithoutCancel(ctx), l.db, "SELECT 1 FROM calls WHERE id = ? AND signed IS NOT NULL", id)
	return open || err != nil
}

// charged returns what a call was charged at its last outcome, as far as the server says, in atomic units.
func (l *Ledger) charged(ctx context.Context, id string) uint64 {
	amount, _ := value[uint64](context.WithoutCancel(ctx), l.db, "SELECT charged FROM calls WHERE id = ?", id) // 0 if it cannot be read
	return amount
}

// refusedCall returns the payment identifier of the same call that was refused last, or "". Should the server have charged it after all,
// the identifier keeps it from charging the call again.
func (l *Ledger) refusedCall(ctx context.Context, request string) (string, error) {
	return value[string](ctx, l.db, "SELECT id FROM calls WHERE request = ? AND again ORDER BY at DESC LIMIT 1", request)
}

func (l *Ledger) Used(ctx context.Context) (bool, error) {
	return value[bool](ctx, l.db, "SELECT EXISTS (SELECT 1 FROM payments)")
}

// useKey lets an idempotency key name a request, or returns a failure if it names another one.
func (l *Ledger) useKey(ctx context.Context, key, request string) error {
	return l.transact(ctx, func(tx *sql.Tx) error {
		known, err := value[string](ctx, tx, "INSERT INTO keys VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET key = key RETURNING request",
			key, request)
		if err == nil && known != request {
			return failf(ExitUsage, "key_used", "", "the key %s was used for a call with other arguments; nothing was paid. Use another key for "+
				"another call", VisibleName(key))
		}
		return err
	})
}
