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

// payingKeys caches the hashes of API keys whose calls were paid in the last ten minutes, so that such an agent can ask
// for prices when others have used up the tokens of its address. Only the agent knows its key, while wallets are
// public.
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

// paid records that a call with this key was paid.
func (k *payingKeys) paid(keyHash [sha256.Size]byte, account uuid.UUID) {
	k.accounts.Add(keyHash, payingAccount{account, time.Now().Add(paidFor)})
}

// account returns the account of a key whose call was paid in the last ten minutes.
func (k *payingKeys) account(key string) (uuid.UUID, bool) {
	if key == "" {
		return uuid.UUID{}, false
	}
	account, ok := k.accounts.Get(sha256.Sum256([]byte(key)))
	return account.id, ok && time.Now().Before(account.until)
}
