package agent

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/crypto/scrypt"
)

// Passphrase guards what only a person may do: raising limits, approving, unfreezing and accepting. It is kept beside the wallet's key, so
// that it stays if wallet.db is deleted, and as a slow hash with a salt.
type Passphrase struct {
	Secrets Secrets
	Address string // of the wallet
}

// ErrPassphrase means that a passphrase is wrong.
var ErrPassphrase = errors.New("that is not the wallet's passphrase; nothing was changed")

func (p Passphrase) name() string { return "passphrase " + strings.ToLower(p.Address) }

// IsSet reports whether there is a passphrase.
func (p Passphrase) IsSet() (bool, error) {
	kept, err := p.Secrets.Load(p.name())
	if errors.Is(err, ErrNoSecret) {
		err = nil
	}
	return kept != "", err
}

// Set replaces the passphrase. "" removes it.
func (p Passphrase) Set(passphrase string) error {
	if passphrase == "" {
		return p.Secrets.Save(p.name(), "")
	}
	salt := rand.Text()
	hash, err := slowHash(passphrase, salt)
	if err != nil {
		return err
	}
	return p.Secrets.Save(p.name(), salt+" "+hash)
}

// Check returns [ErrPassphrase] if the passphrase is another one.
func (p Passphrase) Check(passphrase string) error {
	kept, err := p.Secrets.Load(p.name())
	if err != nil {
		return err
	}
	salt, want, _ := strings.Cut(kept, " ")
	hash, err := slowHash(passphrase, salt)
	if err == nil && subtle.ConstantTimeCompare([]byte(hash), []byte(want)) == 0 {
		err = ErrPassphrase
	}
	return err
}

// slowHash takes a tenth of a second.
func slowHash(passphrase, salt string) (string, error) {
	hash, err := scrypt.Key([]byte(passphrase), []byte(salt), 1<<workFactor, 8, 1, 32)
	return base64.StdEncoding.EncodeToString(hash), err
}
