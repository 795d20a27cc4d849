package agent

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Limits bound what a wallet may spend. Amounts are in atomic units of the token (1,000,000 are 1 USDC).
type Limits struct {
	// PerCall is the highest price that is paid without an approval.
	PerCall uint64 `json:"per_call"`
	// PerDay is the most that can be taken for payments of 24 hours.
	PerDay uint64 `json:"per_day"`
	// Polls is the part of PerDay that fetching unread messages may use.
	Polls uint64 `json:"polls"`
}

// DefaultLimits are the limits of a new wallet. Everything but creating a group chat, a channel or an account is below PerCall.
var DefaultLimits = Limits{PerCall: 30_000, PerDay: 1_000_000, Polls: 100_000}

// raises reports whether a limit is above the present one.
func (l Limits) raises(present Limits) bool {
	return l.PerCall > present.PerCall || l.PerDay > present.PerDay || l.Polls > present.Polls
}

// ErrFrozen means that the wallet pays nothing until a person ends that.
var ErrFrozen = errors.New("the wallet is frozen; a person can end that with: parley wallet unfreeze")

// LimitError means that a payment exceeds a limit. Nothing was signed.
type LimitError struct {
	// Limit is "per call", "per day", "polls per day", "of deposits per day", or [limitOfCall].
	Limit string
	// Price is what the call costs, Left what the limit leaves, in atomic units.
	Price, Left uint64
	// Approval is the id with which a person can allow this call once, if it has one.
	Approval string
}

// limitOfCall is the limit that the command has for each of its calls.
const limitOfCall = "of this call"

// ForPerson reports whether a person can allow a call above the limit. A command can only drop its own limit.
func (e *LimitError) ForPerson() bool { return e.Limit != limitOfCall }

// Reason says what the call costs and what the limit allows.
func (e *LimitError) Reason() string {
	switch price, left := USD(e.Price), USD(e.Left); e.Limit {
	case "per call":
		return fmt.Sprintf("the call costs %s USD, the limit per call is %s USD", price, left)
	case limitOfCall:
		return fmt.Sprintf("the call costs %s USD, more than its own limit of %s USD", price, left)
	default:
		return fmt.Sprintf("the call costs %s USD, and %s USD are left of the limit %s", price, left, e.Limit)
	}
}

func (e *LimitError) Error() string {
	text := e.Reason()
	if e.Approval != "" {
		text += "; a person can allow it once with: parley wallet approve " + e.Approval
	}
	return text
}

// frozen reports whether the wallet is frozen. It is if that is not known.
func frozen(ctx context.Context, from queryer) bool {
	text, err := setting(ctx, from, frozenSetting)
	return err != nil || text != ""
}

// Limits returns the limits, what the day's limits still allow, and whether the wallet is frozen.
func (l *Ledger) Limits(ctx context.Context) (limits Limits, left Limits, isFrozen bool, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		var counted usage
		limits, counted, err = l.counted(ctx, tx)
		left = Limits{
			PerCall: limits.PerCall, PerDay: limits.PerDay - min(counted.all, limits.PerDay), Polls: limits.Polls - min(counted.polls, limits.Polls),
		}
		left.Polls = min(left.Polls, left.PerDay)
		isFrozen = frozen(ctx, tx)
		return err
	})
	return limits, left, isFrozen, err
}

// ErrRaise means that only a person may raise limits.
var ErrRaise = errors.New("only a person at a terminal can raise limits")

// SetLimits replaces the limits. Only a person may raise them; anyone may lower them.
func (l *Ledger) SetLimits(ctx context.Context, limits Limits, person bool) error {
	return l.step(ctx, func(tx *sql.Tx) error {
		present, err := loadSetting(ctx, tx, limitsSetting, DefaultLimits)
		if err != nil {
			return err
		}
		if limits.raises(present) && !person {
			return ErrRaise
		}
		return saveSetting(ctx, tx, limitsSetting, limits)
	})
}

// Freeze lets the wallet pay nothing more, from the next payment on.
func (l *Ledger) Freeze(ctx context.Context) error {
	return l.step(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, frozenSetting, true) })
}

// Unfreeze ends Freeze. Only a person may call it.
func (l *Ledger) Unfreeze(ctx context.Context) error {
	return l.step(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM settings WHERE name = ?", frozenSetting)
		return err
	})
}
