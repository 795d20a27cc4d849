package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// Registration is a username that is reserved for a new account.
type Registration struct {
	Username  string
	TANHash   []byte `gorm:"column:tan_hash"`
	Payer     string
	ExpiresAt time.Time
	ClaimedBy *uuid.UUID
	PaymentID *uuid.UUID // its response holds the TAN
}

// operatorNames are usernames that pose as the operator. Nobody can register them, but the operator can rename an account to one.
var operatorNames = []string{"parley", "admin", "administrator", "support", "system", "moderator", "operator", "security", "official",
	"root", "help"}

// TANLifetime is how long a TAN is valid.
const TANLifetime = 10 * time.Minute

// RequestAccount reserves the username for the payer and stores the hash of username and TAN, which the response to the payment
// holds. A new request by the same payer replaces the TAN. It returns ErrUsernameTaken, ErrUsernameReserved or ErrOperatorName.
func (tx *Tx) RequestAccount(ctx context.Context, username, payer string, tanHash []byte, payment uuid.UUID) error {
	if slices.Contains(operatorNames, username) {
		return ErrOperatorName
	}
	if err := tx.checkUsername(ctx, username, uuid.Nil); err != nil {
		return err
	}
	// The database's clock decides, as for leases.
	reserved, err := exec(ctx, tx, `
		INSERT INTO registrations AS r (username, tan_hash, payer, payment_id, expires_at)
		VALUES (@username, @tan, @payer, @payment, now() + CAST(@lifetime AS interval))
		ON CONFLICT (username) DO UPDATE
			SET tan_hash = excluded.tan_hash, payer = excluded.payer, expires_at = excluded.expires_at, payment_id = excluded.payment_id
		WHERE r.claimed_by IS NULL AND (r.expires_at <= now() OR r.payer = excluded.payer)`,
		named{"username": username, "tan": tanHash, "payer": payer, "payment": payment, "lifetime": TANLifetime})
	return changedOr(reserved, err, "reserve username", ErrUsernameReserved)
}

// ReserveRegistration reserves the username and its TAN for a payment that is about to settle. It returns
// ErrUsernameReserved if another payment reserved them first, or if the TAN was replaced or has expired since it was
// checked. Taking it with a TAN that is not valid would block the username for the owner of the valid one.
func (tx *Tx) ReserveRegistration(ctx context.Context, username string, tanHashes [][]byte, payment uuid.UUID) error {
	reserved, err := gorm.G[Registration](tx.db).
		Where("username = ? AND tan_hash IN ? AND claimed_by IS NULL AND expires_at > now()", username, tanHashes).
		Update(ctx, "claimed_by", payment)
	return changedOr(reserved, err, "take registration", ErrUsernameReserved)
}

// CreateAccount turns the registration into an agent. A payment that has reserved the registration needs no TAN any more. It returns
// ErrInvalidTAN, ErrUsernameReserved (another payment has claimed the registration) or ErrUsernameTaken.
func (tx *Tx) CreateAccount(ctx context.Context, agent Agent, tanHashes [][]byte, payment uuid.UUID) error {
	var used []Registration
	err := tx.gorm(ctx, &Registration{}).Clauses(clause.Returning{Columns: []clause.Column{{Name: "payment_id"}}}).
		Where("username = ? AND (claimed_by = ? OR (tan_hash IN ? AND claimed_by IS NULL AND expires_at > now()))",
			agent.Username, payment, tanHashes).Delete(&used).Error
	if err != nil {
		return fmt.Errorf("use TAN: %w", err)
	}
	if len(used) == 0 {
		reserved := gorm.G[Registration](tx.db).Where("username = ? AND claimed_by IS NOT NULL", agent.Username)
		if err := refuseIf(ctx, ErrUsernameReserved, "look for registration", reserved); err != nil {
			return err
		}
		return ErrInvalidTAN
	}
	agent.KeyPayment = &payment
	switch err := gorm.G[Agent](tx.db).Create(ctx, &agent); {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return ErrUsernameTaken
	case err != nil:
		return fmt.Errorf("create agent: %w", err)
	}
	return tx.eraseResponse(ctx, used[0].PaymentID) // the TAN has been used
}
