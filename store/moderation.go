package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Errors of operators' actions.
var (
	ErrPrivate      = errors.New("a private chat cannot be removed; remove its messages, or suspend one of the agents")
	ErrNotRemoved   = errors.New("the operator has not removed this conversation")
	ErrNotSuspended = errors.New("the account is not suspended")
	ErrErased       = errors.New("the account was erased")
)

// Suspension makes an account unusable, until the operator resumes it or, if Erased, for good. Message is what the agent is told.
type Suspension struct {
	AgentID   uuid.UUID
	Message   string
	WasListed bool
	Erased    bool
	CreatedAt time.Time
}

// SettledAfter is how long after a change of an account or a message no running call uses what it read before: an agent is cached
// for a second, and a call waits no longer than CallTime.
const SettledAfter = cachedFor + CallTime

// Suspension returns the suspension of an agent, or nil.
func (r *Reader) Suspension(ctx context.Context, agent uuid.UUID) (*Suspension, error) {
	found, err := gorm.G[Suspension](r.db).Where("agent_id = ?", agent).Find(ctx)
	return firstOr(found, err, "look for a suspension", nil)
}

// changeAccount runs an action on an account that is not erased, which is locked, and its suspension, if there is one.
func (s *Store) changeAccount(
	ctx context.Context, by Operator, name string, agent uuid.UUID,
	action func(tx *Tx, entry *AuditEntry, account *Agent, before *Suspension) error,
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
		tx.changed = true
		return action(tx, entry, account, before)
	})
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

// list makes the directory list an agent or not.
func (tx *Tx) list(ctx context.Context, agent uuid.UUID, listed bool) error {
	_, err := gorm.G[Agent](tx.db).Where("id = ?", agent).Update(ctx, "is_discoverable", listed)
	return err
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

// changeStored runs an action on a conversation, which is locked.
func (s *Store) changeStored(
	ctx context.Context, by Operator, name string, id uuid.UUID, action func(tx *Tx, conversation *Conversation) error,
) error {
	entry := AuditEntry{Action: name, TargetKind: TargetConversation, TargetID: id}
	return s.audited(ctx, by, entry, func(tx *Tx, entry *AuditEntry) error {
		if err := tx.LockConversation(ctx, id); err != nil {
			return err
		}
		conversation, err := tx.StoredConversation(ctx, id)
		if err != nil {
			return err
		}
		entry.AgentID, entry.Details = conversation.AdminID, map[string]any{"kind": conversation.Kind}
		return action(tx, conversation)
	})
}

// removedContent replaces the content of a removed message.
const removedContent = "[removed by the operator]"

// conversationRemoval marks a conversation that the operator has deleted.
type conversationRemoval struct {
	ConversationID uuid.UUID
	CreatedAt      time.Time
}

// StoredMessage returns what an operator may see of a message, which is not its content, or ErrMessageNotFound.
func (r *Reader) StoredMessage(ctx context.Context, id uuid.UUID) (*Message, error) {
	found, err := gorm.G[Message](r.db).Select("id", "conversation_id", "number", "sender_id", "created_at", "removed_at").Where("id = ?",
		id).Find(ctx)
	return firstOr(found, err, "find message", ErrMessageNotFound)
}

// RemoveMessage replaces the content of a message and takes its pin away. It returns ErrMessageNotFound. Erase the stored responses
// that contain it with EraseReads.
func (s *Store) RemoveMessage(ctx context.Context, by Operator, id uuid.UUID) error {
	entry := AuditEntry{Action: "messages.remove", TargetKind: TargetMessage, TargetID: id}
	return s.audited(ctx, by, entry, func(tx *Tx, entry *AuditEntry) error {
		message, err := tx.StoredMessage(ctx, id)
		if err != nil {
			return err
		}
		entry.AgentID = &message.SenderID
		entry.Details = map[string]any{"conversation_id": message.ConversationID, "number": message.Number}
		// First the message, as EraseAgent does, and then the conversation, for which sends wait.
		err = tx.gorm(ctx, &Message{}).Where("conversation_id = ? AND number = ?", message.ConversationID, message.Number).
			Updates(map[string]any{"content": removedContent, "about": nil, "removed_at": tx.Now()}).Error
		if err != nil {
			return err
		}
		if err := tx.LockConversation(ctx, message.ConversationID); err != nil {
			return err
		}
		return tx.Unpin(ctx, message.ConversationID, []uuid.UUID{id})
	})
}

// RemovedAt returns when the operator removed the conversation, or nil.
func (s *Store) RemovedAt(ctx context.Context, conversation uuid.UUID) (*time.Time, error) {
	found, err := gorm.G[conversationRemoval](s.db).Where("conversation_id = ?", conversation).Find(ctx)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0].CreatedAt, nil
}

// RemoveConversation deletes a group chat or channel in a way that can be undone, and notifies its admin and the members of a group
// chat. It returns ErrChatNotFound, ErrDeleted or ErrPrivate.
func (s *Store) RemoveConversation(ctx context.Context, by Operator, id uuid.UUID) error {
	return s.changeStored(ctx, by, "conversations.remove", id, func(tx *Tx, removed *Conversation) error {
		switch {
		case removed.Kind == KindPrivate:
			return ErrPrivate
		case removed.DeletedAt != nil:
			return ErrDeleted
		}
		members, err := tx.markDeleted(ctx, removed.Kind, id)
		if err != nil {
			return err
		}
		if err := gorm.G[conversationRemoval](tx.db).Create(ctx, &conversationRemoval{ConversationID: id}); err != nil {
			return err
		}
		return tx.writeNotices(ctx, NoticeDeleted, id, *removed.AdminID, append(members, *removed.AdminID))
	})
}

// RestoreConversation undoes RemoveConversation. It returns ErrChatNotFound, ErrNotRemoved, or ErrErased if the admin was erased.
func (s *Store) RestoreConversation(ctx context.Context, by Operator, id uuid.UUID) error {
	return s.changeStored(ctx, by, "conversations.restore", id, func(tx *Tx, restored *Conversation) error {
		ended, err := gorm.G[conversationRemoval](tx.db).Where("conversation_id = ?", id).Delete(ctx)
		switch {
		case err != nil:
			return err
		case ended == 0:
			return ErrNotRemoved
		}
		if admin, err := tx.Suspension(ctx, *restored.AdminID); err != nil || admin != nil && admin.Erased {
			return errors.Join(err, fmt.Errorf("the admin: %w", ErrErased))
		}
		if err := tx.changeConversation(ctx, id, map[string]any{"deleted_at": nil}); err != nil {
			return err
		}
		_, err = gorm.G[Notice](tx.db).Where("conversation_id = ? AND type = ?", id, NoticeDeleted).Delete(ctx)
		return err
	})
}
