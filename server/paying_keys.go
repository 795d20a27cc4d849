package server

import (
	"crypto/sha256"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	paidFor       = 10 * time.Minute
	maxPayingKeys = 100_000 // about 20 MB
)

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
	accounts, _ := lru.New[[sha256.Size]byte, payingAccount](maxPayingKeys) // fails for sizes below 1
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
