package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Registration is a username on its way to an account.
type Registration struct {
	Username  string
	TANHash   []byte `gorm:"column:tan_hash"`
	Payer     string
	ExpiresAt time.Time
	ClaimedBy *uuid.UUID
	PaymentID *uuid.UUID // whose response holds the TAN
}

// TANLifetime is how long a TAN is valid.
const TANLifetime = 10 * time.Minute

// hashTAN mixes in the username, so that equal TANs of two usernames do not look alike.
func hashTAN(username, tan string) []byte {
	sum := sha256.Sum256([]byte(username + "\x00" + tan))
	return sum[:]
}

// RequestAccount reserves the username for the payer and stores the TAN, which the response to the payment holds. A new
// request by the same payer replaces the TAN. ErrUsernameTaken, ErrUsernameReserved.
func (s *Store) RequestAccount(ctx context.Context, username, payer, tan string, payment uuid.UUID) error {
	switch _, err := s.AgentByUsername(ctx, username); {
	case err == nil:
		return ErrUsernameTaken
	case !errors.Is(err, ErrAgentNotFound):
		return err
	}
	reserved, err := gorm.G[string](s.db).Raw(`
		INSERT INTO registrations AS r (username, tan_hash, payer, expires_at, payment_id)
		VALUES (@username, @hash, @payer, now() + @seconds * interval '1 second', @payment)
		ON CONFLICT (username) DO UPDATE
		SET tan_hash = excluded.tan_hash, payer = excluded.payer, expires_at = excluded.expires_at, payment_id = excluded.payment_id
		WHERE r.claimed_by IS NULL AND (r.expires_at <= now() OR r.payer = excluded.payer)
		RETURNING username`, map[string]any{"username": username, "hash": hashTAN(username, tan), "payer": payer,
		"seconds": TANLifetime.Seconds(), "payment": payment}).Find(ctx)
	if err != nil {
		return fmt.Errorf("reserve username: %w", err)
	}
	if len(reserved) == 0 {
		return ErrUsernameReserved
	}
	return nil
}

// ClaimRegistration keeps the username and its TAN for a payment that is about to settle. ErrUsernameReserved if
// another payment was faster, or the TAN has been replaced or has expired since it was looked at: a claim on a registration
// that the TAN does not open would keep the username from whoever has it.
func (s *Store) ClaimRegistration(ctx context.Context, username, tan string, payment uuid.UUID) error {
	claimed, err := gorm.G[string](s.db).Raw(`UPDATE registrations SET claimed_by = ?
		WHERE username = ? AND tan_hash = ? AND claimed_by IS NULL AND expires_at > now() RETURNING username`,
		payment, username, hashTAN(username, tan)).Find(ctx)
	if err != nil {
		return fmt.Errorf("claim registration: %w", err)
	}
	if len(claimed) == 0 {
		return ErrUsernameReserved
	}
	return nil
}

// CreateAccount turns the registration into an agent. ErrInvalidTAN, ErrUsernameReserved (another payment has claimed
// the registration), ErrUsernameTaken.
func (s *Store) CreateAccount(ctx context.Context, agent Agent, tan string, payment uuid.UUID) error {
	registration, err := gorm.G[Registration](s.db).Raw(`
		DELETE FROM registrations
		WHERE username = @username AND tan_hash = @hash AND (claimed_by = @payment OR (claimed_by IS NULL AND expires_at > now()))
		RETURNING username, payment_id`, map[string]any{"username": agent.Username, "hash": hashTAN(agent.Username, tan), "payment": payment}).Find(ctx)
	if err != nil {
		return fmt.Errorf("use TAN: %w", err)
	}
	if len(registration) == 0 {
		claimed, err := gorm.G[Registration](s.db).Where("username = ? AND claimed_by IS NOT NULL", agent.Username).Count(ctx, "*")
		if err != nil {
			return fmt.Errorf("look for registration: %w", err)
		}
		if claimed > 0 {
			return ErrUsernameReserved
		}
		return ErrInvalidTAN
	}
	agent.KeyPayment = &payment
	switch err := gorm.G[Agent](s.db).Create(ctx, &agent); {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return ErrUsernameTaken
	case err != nil:
		return fmt.Errorf("create agent: %w", err)
	}
	return s.eraseResponse(ctx, registration[0].PaymentID) // the TAN has served
}
