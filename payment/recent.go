package payment

import (
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	paidFor   = 10 * time.Minute
	maxPayers = 100_000 // about 20 MB
)

// recent is a cache whose entries expire. When it is full, it drops the entry that was used least recently.
type recent[K comparable, V any] struct {
	entries *lru.Cache[K, expiring[V]]
}

type expiring[V any] struct {
	value V
	until time.Time
}

func newRecent[K comparable, V any](most int) recent[K, V] {
	entries, _ := lru.New[K, expiring[V]](most) // fails for sizes below 1
	return recent[K, V]{entries}
}

func (r recent[K, V]) add(key K, value V, lifetime time.Duration) {
	r.entries.Add(key, expiring[V]{value, time.Now().Add(lifetime)})
}

// change changes the value of an entry, if there is one. Its lifetime stays the same.
func (r recent[K, V]) change(key K, value V) {
	if found, ok := r.entries.Peek(key); ok {
		r.entries.Add(key, expiring[V]{value, found.until})
	}
}

func (r recent[K, V]) get(key K) (value V, ok bool) {
	found, ok := r.entries.Get(key)
	return found.value, ok && time.Now().Before(found.until)
}

// payers are the wallets and accounts whose payments settled in the last ten minutes, as far as this server knows. The
// wallets have proved that they hold funds. Accounts are found by the hashes of their API keys: only the agent knows its
// key, while wallets are public.
type payers struct {
	wallets  recent[evm.Address, struct{}]
	accounts recent[string, uuid.UUID]
}

func newPayers() *payers {
	return &payers{wallets: newRecent[evm.Address, struct{}](maxPayers), accounts: newRecent[string, uuid.UUID](maxPayers)}
}

// settled records that a payment settled.
func (p *payers) settled(wallet string, caller *Caller) {
	p.wallets.add(evm.HexToAddress(wallet), struct{}{}, paidFor)
	if caller != nil {
		p.accounts.add(string(caller.KeyHash), caller.Account, paidFor)
	}
}

// refused records that a payment of the wallet did not settle, so that its balance is checked before the next one.
func (p *payers) refused(wallet string) { p.wallets.entries.Remove(evm.HexToAddress(wallet)) }

// settledLately reports whether a payment of the wallet settled lately.
func (p *payers) settledLately(wallet string) bool {
	_, ok := p.wallets.get(evm.HexToAddress(wallet))
	return ok
}
