package server

import (
	"crypto/sha256"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	paidFor    = 10 * time.Minute
	manyPayers = 100_000 // about 20 MB
)

// wallets remembers which wallets settled a payment lately. They have shown that they have money and spend it here, so
// that they are served when strangers at their address have used up its tokens.
type wallets struct {
	until *lru.Cache[common.Address, time.Time]
}

func newWallets() *wallets {
	until, _ := lru.New[common.Address, time.Time](manyPayers) // fails for sizes below 1
	return &wallets{until}
}

// settled notes that a payment of the wallet settled.
func (w *wallets) settled(wallet string) {
	w.until.Add(common.HexToAddress(wallet), time.Now().Add(paidFor))
}

// refused notes that a payment of the wallet did not settle: what it holds is looked at again before its next one.
func (w *wallets) refused(wallet string) { w.until.Remove(common.HexToAddress(wallet)) }

// settledLately tells whether a payment of the wallet settled in the last ten minutes, as far as this server knows.
func (w *wallets) settledLately(wallet string) bool {
	until, ok := w.until.Get(common.HexToAddress(wallet))
	return ok && time.Now().Before(until)
}

// payingKeys remembers the API keys of calls that were paid lately, by their hashes, so that such an agent can ask for
// prices when strangers at its address have used up its tokens. A key is known to its agent alone, a wallet to everybody.
type payingKeys struct {
	accounts *lru.Cache[[sha256.Size]byte, payingAccount]
}

type payingAccount struct {
	id    uuid.UUID
	until time.Time
}

func newPayingKeys() *payingKeys {
	accounts, _ := lru.New[[sha256.Size]byte, payingAccount](manyPayers) // fails for sizes below 1
	return &payingKeys{accounts}
}

// paid notes that a call of the account with this key was paid.
func (k *payingKeys) paid(keyHash [sha256.Size]byte, account uuid.UUID) {
	k.accounts.Add(keyHash, payingAccount{account, time.Now().Add(paidFor)})
}

// account returns the account of a key that paid in the last ten minutes.
func (k *payingKeys) account(key string) (uuid.UUID, bool) {
	if key == "" {
		return uuid.UUID{}, false
	}
	account, ok := k.accounts.Get(sha256.Sum256([]byte(key)))
	return account.id, ok && time.Now().Before(account.until)
}
