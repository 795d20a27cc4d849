package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/parley-chat/parley/x402"
)

// Budget limits what a [Payer] signs. All methods may be called concurrently.
type Budget interface {
	// Reserve counts a payment before it is signed. If it returns an error, such as an [*OverLimitError], nothing is signed.
	Reserve(ctx context.Context, r Reservation) error
	// Release ends a reservation of which the server said that it charged nothing, or whose payment was not sent. A server that
	// lies can still use a payment that was sent, until its validity ends. One with a deposit was not sent.
	Release(ctx context.Context, r Reservation, sent bool)
	// Left returns the most that a deposit into a payment channel may lock now, in atomic units. It is asked before a deposit.
	Left(ctx context.Context) (uint64, error)
}

// releaseTime limits how long a reservation may take to end after its call.
const releaseTime = 5 * time.Second

// release ends a reservation, also if the context of its call has ended.
func release(ctx context.Context, budget Budget, r Reservation, sent bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	budget.Release(ctx, r, sent)
}

// Reservation is a payment that is about to be signed.
type Reservation struct {
	// ID is the payment identifier of the call. All payments of one call have the same.
	ID string
	// Price is what the call costs, in atomic units.
	Price uint64
	// Amount is what the payee can take with this signature and not without it, in atomic units. It is below Price if an
	// earlier voucher of the payment channel was not charged, and 0 if that one covers the call.
	Amount uint64
	// Deposit is what the payment locks in a payment channel, in atomic units. The payee can take it only with vouchers.
	Deposit uint64
	// Channel is the id of the payment channel that pays, or "".
	Channel string
	// Cumulative is what the voucher allows the payee to take since that channel was opened, in atomic units, or 0.
	Cumulative uint64
	// Offer is what is paid.
	Offer x402.PaymentRequirements
}

// Limits bound what a Payer may spend, in atomic units of the token (1,000,000 are 1 USDC).
type Limits struct {
	PerCall uint64
	Total   uint64
}

// MemoryBudget is a Budget that ends with the process. It believes a server that says that it charged nothing.
type MemoryBudget struct {
	limits Limits
	mu     sync.Mutex
	used   uint64
	locked uint64 // deposits
}

// NewMemoryBudget returns a budget of which nothing is used.
func NewMemoryBudget(limits Limits) *MemoryBudget { return &MemoryBudget{limits: limits} }

// Reserve implements [Budget].
func (b *MemoryBudget) Reserve(_ context.Context, r Reservation) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Price > b.limits.PerCall {
		return &OverLimitError{r.Price, b.limits.PerCall, "per call"}
	}
	if left := b.limits.Total - min(b.used, b.limits.Total); r.Amount > left {
		return &OverLimitError{r.Amount, left, "in total"}
	}
	if left := b.left(); r.Deposit > left {
		return &OverLimitError{r.Deposit, left, "of deposits"}
	}
	b.used, b.locked = b.used+r.Amount, b.locked+r.Deposit
	return nil
}

// Release implements [Budget].
func (b *MemoryBudget) Release(_ context.Context, r Reservation, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used, b.locked = b.used-r.Amount, b.locked-r.Deposit
}

// Left implements [Budget].
func (b *MemoryBudget) Left(context.Context) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left(), nil
}

// left is what may be locked: a deposit may be for what is already counted, but not all deposits together for more than Total.
func (b *MemoryBudget) left() uint64 {
	return b.limits.Total - min(max(b.used, b.locked), b.limits.Total)
}

// OverLimitError means that a price exceeds a limit. Nothing was signed.
type OverLimitError struct {
	Price, Left uint64 // atomic units
	Which       string // such as "per call" or "in total"
}

func (e *OverLimitError) Error() string {
	return fmt.Sprintf("the call costs %s USD, the limit %s leaves %s USD", x402.FormatUSD(e.Price), e.Which, x402.FormatUSD(e.Left))
}
