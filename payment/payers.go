package payment

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	paidFor   = 10 * time.Minute
	maxPayers = 100_000 // about 20 MB
)

// payers caches which wallets settled a payment in the last ten minutes. They have proved that they hold funds.
type payers struct {
	until *lru.Cache[evm.Address, time.Time]
}

func newPayers() *payers {
	until, _ := lru.New[evm.Address, time.Time](maxPayers) // fails for sizes below 1
	return &payers{until}
}

// settled records that a payment of the wallet settled.
func (p *payers) settled(wallet string) {
	p.until.Add(evm.HexToAddress(wallet), time.Now().Add(paidFor))
}

// refused records that a payment of the wallet did not settle, so that its balance is checked before the next one.
func (p *payers) refused(wallet string) { p.until.Remove(evm.HexToAddress(wallet)) }

// settledLately tells whether a payment of the wallet settled in the last ten minutes, as far as this server knows.
func (p *payers) settledLately(wallet string) bool {
	until, ok := p.until.Get(evm.HexToAddress(wallet))
	return ok && time.Now().Before(until)
}
