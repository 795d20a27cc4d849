package agent

import (
	"context"
	"database/sql"
	"fmt"
)

// DefaultLimit is the daily limit of a new wallet, in atomic units of the token (1,000,000 are 1 USDC).
const DefaultLimit uint64 = 1_000_000

// DearPrice is the price above which a call is confirmed: group chats, channels and accounts cost more.
const DearPrice uint64 = 100_000

// limits is the setting with the daily limit.
type limits struct {
	PerDay uint64 `json:"per_day"`
}

// Day is what may be spent on a UTC day, and what is spent or reserved of that, in atomic units.
type Day struct{ Limit, Spent uint64 }

// Left is what may still be spent.
func (d Day) Left() uint64 { return d.Limit - min(d.Spent, d.Limit) }

// LimitError means that a payment exceeds the daily limit. Nothing was signed.
type LimitError struct {
	Price uint64 // of the call or the deposit, in atomic units
	Day
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("the call costs %s USD, and %s USD are left of the daily limit of %s USD; nothing was paid",
		USD(e.Price), USD(e.Left()), USD(e.Limit))
}

// ConfirmError means that a call is dear or final, and nobody has confirmed it. Nothing was done.
type ConfirmError struct {
	Operation string
	Price     uint64 // atomic units
	What      string // what is final, or ""
	Command   string // that does it, confirmed
}

// Question asks for the confirmation.
func (e *ConfirmError) Question() string {
	if e.What != "" {
		return e.What + " This is final."
	}
	return fmt.Sprintf("Pay %s USD for %s?", USD(e.Price), e.Operation)
}

func (e *ConfirmError) Error() string {
	if e.What != "" {
		return "this is final and must be confirmed; nothing was done"
	}
	return fmt.Sprintf("%s costs %s USD, and calls above %s USD must be confirmed; nothing was paid", e.Operation, USD(e.Price),
		USD(DearPrice))
}

// NoMoneyError means that the wallet has too little money for a call. Nothing was charged.
type NoMoneyError struct {
	Price            uint64 // atomic units
	Balance          *uint64
	Address, Network string
}

func (e *NoMoneyError) Error() string {
	has := "too little"
	if e.Balance != nil {
		has = USD(*e.Balance)
	}
	return fmt.Sprintf("the wallet has %s USDC and the call costs %s; send USDC on %s to %s; nothing was charged",
		has, USD(e.Price), e.Network, e.Address)
}

// Today returns the daily limit and what is spent of it.
func (l *Ledger) Today(ctx context.Context) (today Day, err error) {
	err = l.transact(ctx, func(tx *sql.Tx) error {
		today, err = l.counted(ctx, tx, notPoor)
		return err
	})
	return today, err
}

// SetLimit replaces the daily limit. 0 stops all payments but that for a new API key.
func (l *Ledger) SetLimit(ctx context.Context, limit uint64) error {
	return l.transact(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, limitsSetting, limits{limit}) })
}
