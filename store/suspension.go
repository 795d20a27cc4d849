package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Suspension makes an account unusable, until the operator resumes it or, if Erased, for good. Message is what the agent is told.
type Suspension struct {
	AgentID   uuid.UUID
	Message   string
	WasListed bool
	Erased    bool
	CreatedAt time.Time
}

// Errors of operators' actions on accounts.
var (
	ErrNotSuspended = errors.New("the account is not suspended")
	ErrErased       = errors.New("the account was erased")
)

// SettledAfter is how long after a change of an account or a message no running call uses what it read before: an agent is cached
// for a second, and a call waits no longer than CallTime.
const SettledAfter = cachedFor + CallTime

// Suspension returns the suspension of an agent, or nil.
func (r *Reader) Suspension(ctx context.Context, agent uuid.UUID) (*Suspension, error) {
	found, err := gorm.G[Suspension](r.db).Where("agent_id = ?", agent).Find(ctx)
	return first(found, err, "look for a suspension", nil)
}

// checkUsable returns ErrAgentNotFound if the agent was erased, and ErrAgentSuspended if it is suspended.
func (r *Reader) checkUsable(ctx context.Context, agent uuid.UUID) error {
	suspension, err := r.Suspension(ctx, agent)
	switch {
	case err != nil || suspension == nil:
		return err
	case suspension.Erased:
		return ErrAgentNotFound
	}
	return ErrAgentSuspended
}

// SuspendAgent suspends an agent, or changes what a suspended agent is told. Servers notice it within a second. It returns
// ErrAgentNotFound or ErrErased.
func (s *Store) SuspendAgent(ctx context.Context, by Operator, agent uuid.UUID, message string) error {
	return s.changeAccount(ctx, by, "agents.suspend", agent, func(tx *Tx, _ *AuditEntry, account *Agent, before *Suspension) error {
		if before != nil {
			_, err := gorm.G[Suspension](tx.db).Where("agent_id = ?", agent).Update(ctx, "message", message)
			return err
		}
		err := gorm.G[Suspension](tx.db).Create(ctx, &Suspension{AgentID: agent, Message: message, WasListed: account.IsDiscoverable})
		if err != nil {
			return err
		}
		return tx.list(ctx, agent, false)
	})
}

// ResumeAgent ends a suspension. It returns ErrAgentNotFound, ErrErased or ErrNotSuspended.
func (s *Store) ResumeAgent(ctx context.Context, by Operator, agent uuid.UUID) error {
	return s.changeAccount(ctx, by, "agents.resume", agent, func(tx *Tx, entry *AuditEntry, _ *Agent, before *Suspension) error {
		if before == nil {
			return ErrNotSuspended
		}
		entry.Details = map[string]any{"suspended_at": before.CreatedAt.UTC()}
		if _, err := gorm.G[Suspension](tx.db).Where("agent_id = ?", agent).Delete(ctx); err != nil {
			return err
		}
		return tx.list(ctx, agent, before.WasListed)
	})
}

// changeAccount runs an action on an account that is not erased, which is locked, and its suspension, if there is one.
func (s *Store) changeAccount(
	ctx context.Context, by Operator, name string, agent uuid.UUID, action func(tx *Tx, entry *AuditEntry, account *Agent, before *Suspension) error,
) error {
	entry := AuditEntry{Action: name, TargetKind: TargetAgent, TargetID: agent, AgentID: &agent}
	return s.audited(ctx, by, entry, func(tx *Tx, entry *AuditEntry) error {
		account, err := tx.agent(ctx, "id = ?", agent, forNoKeyUpdate)
		if err != nil {
			return err
		}
		before, err := tx.Suspension(ctx, agent)
		switch {
		case err != nil:
			return err
		case before != nil && before.Erased:
			return ErrErased
		}
		tx.forgetAgent(agent)
		return action(tx, entry, account, before)
	})
}

// list makes the directory list an agent or not.
func (tx *Tx) list(ctx context.Context, agent uuid.UUID, listed bool) error {
	_, err := gorm.G[Agent](tx.db).Where("id = ?", agent).Update(ctx, "is_discoverable", listed)
	return err
}
