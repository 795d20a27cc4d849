package agent

import (
	"context"
	"database/sql"
	"time"
)

// day is the period of the daily limits.
const day = 24 * time.Hour

// clockMargin is how far the clock may be ahead for a while without payments being counted for longer.
const clockMargin = 7 * day

// Ledger records every payment of a wallet before it is signed, and limits what they may cost together. Several processes may use
// it at the same time; a restart forgets nothing.
//
// It counts a payment from before it is signed until the payee cannot take it any more, whatever the server says. So a server that
// lies cannot take more than the limits.
type Ledger struct {
	*state

	now     func() time.Time
	chain   Chain         // may be nil
	network func() string // that the wallet pays on
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

// today is the beginning of the last 24 hours.
func (l *Ledger) today() int64 { return micros(l.now().Add(-day)) }

// usage is what counts against the limits of the last day.
type usage struct{ all, polls, deposits uint64 }

// counted returns the limits, and what counts against them. What a person approved is paid in addition to the limits.
func (l *Ledger) counted(ctx context.Context, tx *sql.Tx) (limits Limits, u usage, err error) {
	if limits, err = loadSetting(ctx, tx, limitsSetting, DefaultLimits); err != nil {
		return limits, u, err
	}
	if err := tx.QueryRowContext(ctx, `
		SELECT coalesce(sum(amount), 0), coalesce(sum(iif(cost > 0, cost, amount)) FILTER (WHERE operation = ?), 0) FROM (
			SELECT p.operation, sum(amount) AS amount, cost FROM payments p JOIN calls ON calls.id = p.call
			WHERE NOT released AND p.approval = '' AND p.at >= ? GROUP BY p.call)`,
		pollOperation, l.today()).Scan(&u.all, &u.polls); err != nil {
		return limits, u, err
	}
	u.deposits, err = l.countedDeposits(ctx, tx)
	return limits, u, err
}

// Refused returns what counts for calls that were refused: the server could take it all the same, until another call uses its voucher or
// the payment ends unused.
func (l *Ledger) Refused(ctx context.Context) (uint64, error) {
	return value[uint64](ctx, l.db, `
		SELECT coalesce(sum(amount), 0) FROM payments p JOIN calls ON calls.id = p.call
		WHERE NOT released AND p.approval = '' AND p.at >= ? AND cost = 0 AND calls.signed IS NULL AND status IS NOT NULL`, l.today())
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

// Used reports whether the wallet has ever paid, or was about to.
func (l *Ledger) Used(ctx context.Context) (bool, error) {
	return value[bool](ctx, l.db, "SELECT EXISTS (SELECT 1 FROM payments)")
}
