package store

import (
	"context"
	"iter"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// AuditEntry is an action of an operator. Details and reason have no content of messages, no username and no secret: they stay when
// the account is erased.
type AuditEntry struct {
	TargetID   uuid.UUID
	ID         uuid.UUID // a UUIDv7
	TargetKind string
	Action     string
	AgentID    *uuid.UUID // the agent concerned, if there is one
	Actor      string
	Reason     string
	Details    map[string]any `gorm:"serializer:json"`
	CreatedAt  time.Time      // by the clock of the database
}

func (AuditEntry) TableName() string { return "audit" }

// The kinds of targets.
const (
	TargetAgent        = "agent"
	TargetConversation = "conversation"
	TargetMessage      = "message"
	TargetPayment      = "payment"
)

// Operator is who acts and why. The schema limits Actor to 128 characters and Reason to 1,024. DryRun checks whether an action is
// possible and changes nothing.
type Operator struct {
	Actor, Reason string
	DryRun        bool
}

// audited runs an action and writes its entry, in one transaction. The action completes the entry.
func (s *Store) audited(ctx context.Context, by Operator, entry AuditEntry, action func(tx *Tx, entry *AuditEntry) error) error {
	run := s.Transaction
	if by.DryRun {
		run = s.rollBack
	}
	entry.ID, entry.Actor, entry.Reason = newID(), by.Actor, by.Reason
	if entry.Details == nil {
		entry.Details = map[string]any{}
	}
	err := run(ctx, func(tx *Tx) error {
		if err := action(tx, &entry); err != nil {
			return err
		}
		return wrap("write the audit", gorm.G[AuditEntry](tx.db).Create(ctx, &entry))
	})
	return wrap(entry.Action, err)
}

// AuditFilter selects entries that match all fields that are not empty. Since is inclusive and Until is exclusive.
type AuditFilter struct {
	Action, Actor   string
	Target, AgentID *uuid.UUID
	Since, Until    time.Time
}

// Audit yields the entries that match the filter, newest first. After an error it stops.
func (s *Store) Audit(ctx context.Context, filter AuditFilter) iter.Seq2[AuditEntry, error] {
	return allPages("list the audit", func(last *AuditEntry) *gorm.DB {
		c := match(s.gorm(ctx, &AuditEntry{}).Order("created_at DESC, id DESC"),
			&AuditEntry{Action: filter.Action, Actor: filter.Actor, AgentID: filter.AgentID}, "created_at", filter.Since, filter.Until)
		c.add(filter.Target != nil, "target_id = ?", filter.Target)
		if last != nil {
			c.add(true, "(created_at, id) < (?, ?)", last.CreatedAt, last.ID)
		}
		return c.search
	})
}
