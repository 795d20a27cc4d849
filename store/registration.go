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
	TriesLeft int16
	ExpiresAt time.Time
	ClaimedBy *uuid.UUID
}

// A TAN lives this long, and this many wrong tries end it.
const (
	TANLifetime = 10 * time.Minute
	TANTries    = 5
)

// hashTAN mixes in the username, so that equal TANs of two usernames do not look alike.
func hashTAN(username, tan string) []byte {
	sum := sha256.Sum256([]byte(username + "\x00" + tan))
	return sum[:]
}

// RequestAccount reserves the username for the payer and stores the TAN. A new request by the same payer replaces the
// TAN. ErrUsernameTaken, ErrUsernameReserved.
func (s *Store) RequestAccount(ctx context.Context, username, payer, tan string) error {
	switch _, err := s.AgentByUsername(ctx, username); {
	case err == nil:
		return ErrUsernameTaken
	case !errors.Is(err, ErrAgentNotFound):
		return err
	}
	reserved, err := gorm.G[string](s.db).Raw(`
		INSERT INTO registrations AS r (username, tan_hash, payer, tries_left, expires_at)
		VALUES (@username, @hash, @payer, @tries, now() + @seconds * interval '1 second')
		ON CONFLICT (username) DO UPDATE
		SET tan_hash = excluded.tan_hash, payer = excluded.payer, tries_left = excluded.tries_left, expires_at = excluded.expires_at
		WHERE r.claimed_by IS NULL AND (r.expires_at <= now() OR r.tries_left = 0 OR r.payer = excluded.payer)
		RETURNING username`, map[string]any{"username": username, "hash": hashTAN(username, tan), "payer": payer,
		"tries": TANTries, "seconds": TANLifetime.Seconds()}).Find(ctx)
	if err != nil {
		return fmt.Errorf("reserve username: %w", err)
	}
	if len(reserved) == 0 {
		return ErrUsernameReserved
	}
	return nil
}

// TryTAN counts a wrong try. It stands outside the transaction that creates the account: that one is rehearsed and
// rolled back, and a wrong try must be remembered. ErrInvalidTAN, also when the TAN is right but expired or used up.
func (s *Store) TryTAN(ctx context.Context, username, tan string, payment uuid.UUID) error {
	right, err := gorm.G[bool](s.db).Raw(`
		UPDATE registrations SET tries_left = tries_left - CASE WHEN tan_hash = @hash THEN 0 ELSE 1 END
		WHERE username = @username AND tries_left > 0 AND (expires_at > now() OR claimed_by = @payment)
		RETURNING tan_hash = @hash`, map[string]any{"username": username, "hash": hashTAN(username, tan), "payment": payment}).Find(ctx)
	if err != nil {
		return fmt.Errorf("try TAN: %w", err)
	}
	if len(right) == 0 || !right[0] {
		return ErrInvalidTAN
	}
	return nil
}

// ClaimRegistration keeps the username and its TAN for a payment that is about to settle. ErrUsernameReserved if
// another payment was faster.
func (s *Store) ClaimRegistration(ctx context.Context, username string, payment uuid.UUID) error {
	claimed, err := gorm.G[string](s.db).Raw(`UPDATE registrations SET claimed_by = ? WHERE username = ? AND claimed_by IS NULL RETURNING username`,
		payment, username).Find(ctx)
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
		WHERE username = @username AND tan_hash = @hash AND (claimed_by = @payment OR (claimed_by IS NULL AND expires_at > now() AND tries_left > 0))
		RETURNING *`, map[string]any{"username": agent.Username, "hash": hashTAN(agent.Username, tan), "payment": payment}).Find(ctx)
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
	switch err := gorm.G[Agent](s.db).Create(ctx, &agent); {
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return ErrUsernameTaken
	case err != nil:
		return fmt.Errorf("create agent: %w", err)
	}
	return nil
}
