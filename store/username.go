package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"
)

// reservedUsername is a former username. AgentID is nil if the agent that had it was erased.
type reservedUsername struct {
	UsernameHash []byte
	AgentID      *uuid.UUID
	CreatedAt    time.Time
}

// TableName returns reserved_usernames.
func (reservedUsername) TableName() string { return "reserved_usernames" }

func hashUsername(username string) []byte {
	sum := sha256.Sum256([]byte(username))
	return sum[:]
}

// FormerOwner returns the agent that had this username before it was renamed, or ErrAgentNotFound.
func (r *Reader) FormerOwner(ctx context.Context, username string) (*Agent, error) {
	reserved, err := gorm.G[reservedUsername](r.db).Where("username_hash = ? AND agent_id IS NOT NULL", hashUsername(username)).Find(ctx)
	former, err := first(reserved, err, "look for a former username", ErrAgentNotFound)
	if err != nil {
		return nil, err
	}
	return r.AgentByID(ctx, *former.AgentID)
}

// checkUsername returns ErrUsernameTaken if an agent other than owner has the username or had it.
func (r *Reader) checkUsername(ctx context.Context, username string, owner uuid.UUID) error {
	if err := refuseIf(ctx, ErrUsernameTaken, "look for a username", gorm.G[Agent](r.db).Where("username = ?", username)); err != nil {
		return err
	}
	reserved := gorm.G[reservedUsername](r.db).Where("username_hash = ? AND agent_id IS DISTINCT FROM ?", hashUsername(username), owner)
	return refuseIf(ctx, ErrUsernameTaken, "look for a reserved username", reserved)
}

// RenameAgent gives an agent another username. Nobody else can register the former one. It returns ErrAgentNotFound, ErrErased,
// ErrUsernameTaken or ErrUsernameReserved.
func (s *Store) RenameAgent(ctx context.Context, by Operator, agent uuid.UUID, username string) error {
	return s.changeAccount(ctx, by, "agents.rename", agent, func(tx *Tx, _ *AuditEntry, account *Agent, _ *Suspension) error {
		if err := tx.checkUsername(ctx, username, agent); err != nil {
			return err
		}
		registrations := gorm.G[Registration](tx.db).Where("username = ? AND (claimed_by IS NOT NULL OR expires_at > ?)", username, tx.Now())
		if err := refuseIf(ctx, ErrUsernameReserved, "look for registrations", registrations); err != nil {
			return err
		}
		if err := tx.reserveUsername(ctx, account.Username, &agent); err != nil {
			return err
		}
		_, err := gorm.G[Agent](tx.db).Where("id = ?", agent).Update(ctx, "username", username)
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return ErrUsernameTaken
		}
		return err
	})
}

// reserveUsername keeps others from registering a username.
func (tx *Tx) reserveUsername(ctx context.Context, username string, agent *uuid.UUID) error {
	err := gorm.G[reservedUsername](tx.db, clause.OnConflict{DoNothing: true}).
		Create(ctx, &reservedUsername{UsernameHash: hashUsername(username), AgentID: agent})
	return wrap("reserve a username", err)
}
