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
	// lostFor is how long a client that lost the state of its payment channel is offered exact first.
	lostFor = 24 * time.Hour
	maxLost = 10_000 // about 2 MB
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
	channels recent[string, uint64] // what payment channels were charged, by id; 0 if this is not certain
	// lost are clients that lost the state of their payment channel: see Engine.Challenge.
	lost recent[string, struct{}]
}

func newPayers() *payers {
	return &payers{
		wallets: newRecent[evm.Address, struct{}](maxPayers), accounts: newRecent[string, uuid.UUID](maxPayers),
		channels: newRecent[string, uint64](maxPayers), lost: newRecent[string, struct{}](maxLost),
	}
}

// charged records that a payment channel was charged.
func (p *payers) charged(a *Attempt) {
	p.settled(a.checked.Payer, a.caller)
	p.channels.add(a.channel.ChannelID, a.channel.Max, paidFor)
	p.inStep(a)
}

// inStep records that the client has the state of its payment channel, or gets it with this response.
func (p *payers) inStep(a *Attempt) { p.lost.entries.Remove(a.client) }

// channelPaidLately reports whether a payment channel was charged lately.
func (p *payers) channelPaidLately(id string) bool {
	_, ok := p.channels.get(id)
	return ok
}

// channelFits reports whether the voucher is for the next amount, as far as this server knows. Another server may have charged
// the payment channel since.
func (p *payers) channelFits(a *Attempt) bool {
	charged, ok := p.channels.get(a.channel.ChannelID)
	return ok && charged != 0 && charged+a.operation.Price == a.channel.Max
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
