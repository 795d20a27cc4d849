package payment

import (
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	// PaidFor is how long a payer is known after a payment that settled, and MaxPayers how many are: about 20 MB.
	PaidFor   = 10 * time.Minute
	MaxPayers = 100_000
)

// Recent is a cache whose entries expire. When it is full, it drops the entry that was used least recently.
type Recent[K comparable, V any] struct {
	entries *lru.Cache[K, expiring[V]]
}

type expiring[V any] struct {
	value V
	until time.Time
}

// NewRecent makes a cache of at most so many entries.
func NewRecent[K comparable, V any](most int) Recent[K, V] {
	entries, _ := lru.New[K, expiring[V]](most) // fails for sizes below 1
	return Recent[K, V]{entries}
}

// Add adds an entry for a lifetime.
func (r Recent[K, V]) Add(key K, value V, lifetime time.Duration) {
	r.entries.Add(key, expiring[V]{value, time.Now().Add(lifetime)})
}

// Change changes the value of an entry, if there is one. Its lifetime stays the same.
func (r Recent[K, V]) Change(key K, value V) {
	if found, ok := r.entries.Peek(key); ok {
		r.entries.Add(key, expiring[V]{value, found.until})
	}
}

// Copy adds the value of an entry, if there is one, under another key. Its lifetime stays the same.
func (r Recent[K, V]) Copy(key, other K) {
	if found, ok := r.entries.Peek(key); ok {
		r.entries.Add(other, found)
	}
}

// Get returns the value of an entry, and whether it is there and has not expired.
func (r Recent[K, V]) Get(key K) (value V, ok bool) {
	found, ok := r.entries.Get(key)
	return found.value, ok && time.Now().Before(found.until)
}

// Remove removes an entry.
func (r Recent[K, V]) Remove(key K) { r.entries.Remove(key) }

// payers are the wallets and accounts whose payments settled in the last ten minutes, as far as this server knows. The
// wallets have proved that they hold funds. Accounts are found by the hashes of their API keys: only the agent knows its
// key, while wallets are public.
type payers struct {
	wallets  Recent[evm.Address, int] // how many payments
	accounts Recent[string, uuid.UUID]
}

func newPayers() *payers {
	return &payers{wallets: NewRecent[evm.Address, int](MaxPayers), accounts: NewRecent[string, uuid.UUID](MaxPayers)}
}

// settled records that a payment settled.
func (p *payers) settled(wallet string, caller *Caller) {
	p.wallets.Add(evm.HexToAddress(wallet), p.paidLately(wallet)+1, PaidFor)
	if caller != nil {
		p.accounts.Add(string(caller.KeyHash), caller.Account, PaidFor)
	}
}

// refused records that a payment of the wallet did not settle, or may not have, so that its balance is checked before the next one.
func (p *payers) refused(wallet string) { p.wallets.Remove(evm.HexToAddress(wallet)) }

// paidLately is how many payments of the wallet settled, the last one lately, since one did not.
func (p *payers) paidLately(wallet string) (payments int) {
	if found, ok := p.wallets.Get(evm.HexToAddress(wallet)); ok {
		return found
	}
	return 0
}

// PaidLately reports whether this server settled a payment of the wallet in the last ten minutes.
func (e *Engine) PaidLately(wallet string) bool { return e.payers.paidLately(wallet) > 0 }

// RecentAccount returns the account of an API key whose call was paid in the last ten minutes. KeyHash is the hash as
// in [Caller].
func (e *Engine) RecentAccount(keyHash []byte) (uuid.UUID, bool) {
	return e.payers.accounts.Get(string(keyHash))
}

// Paid records that the payer of an attempt has paid.
func (e *Engine) Paid(a *Attempt) { e.paid(a, a.Payer()) }

// paid records that a wallet has paid for an attempt.
func (e *Engine) paid(a *Attempt, wallet string) {
	e.payers.settled(wallet, a.Caller)
	for _, giveBack := range a.giveBack {
		giveBack()
	}
	a.giveBack = nil
}
