package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"gorm.io/gorm"
)

// Errors of EraseAgent: payments that need the account.
var (
	ErrOpenPayments    = errors.New("payments of the account are open; the servers close them, or see parley payments resolve")
	ErrOwedPayments    = errors.New("payments of the account are undeliverable: their money was taken for nothing; refund them first, see parley payments refund")
	ErrNotSuspendedYet = errors.New("an account is suspended before it is erased, so that no call is under way")
)

// Erasure counts what EraseAgent has changed.
type Erasure struct {
	Messages, Reactions, Blocks, Memberships, Payments int64
	HandedOver, Deleted                                int64 // conversations that the agent administered
}

// EraseAgent erases a suspended account for good. Its id, its messages without content, and the amounts, payers and transactions of
// its payments stay: numbers of others and the ledger are whole. It returns ErrAgentNotFound, ErrErased, ErrNotSuspendedYet,
// ErrOpenPayments or ErrOwedPayments. Erase the stored responses with its messages with EraseReads.
func (s *Store) EraseAgent(ctx context.Context, by Operator, agent uuid.UUID) (erased Erasure, err error) {
	const tries = 5
	for try := 1; ; try++ {
		erased = Erasure{}
		err = s.changeAccount(ctx, by, "agents.erase", agent, func(tx *Store, entry *AuditEntry, account *Agent, before *Suspension) error {
			if before == nil {
				return ErrNotSuspendedYet
			}
			if err := tx.erase(ctx, account, &erased); err != nil {
				return err
			}
			entry.Details = map[string]any{
				"messages": erased.Messages, "reactions": erased.Reactions, "blocks": erased.Blocks, "memberships": erased.Memberships,
				"payments": erased.Payments, "handed_over": erased.HandedOver, "deleted": erased.Deleted,
			}
			return nil
		})
		if !Deadlocked(err) || try == tries {
			return erased, err
		}
	}
}

func (s *Store) erase(ctx context.Context, account *Agent, erased *Erasure) error {
	if err := s.checkErasable(ctx, account.ID); err != nil {
		return err
	}
	if err := s.lockConversationsOf(ctx, account.ID); err != nil {
		return err
	}
	if err := s.giveUpConversations(ctx, account.ID, erased); err != nil {
		return err
	}
	// The agent stays a member of its private chats, which the other agents read, and of the group chats that were deleted.
	const left = `c.kind <> 'private' AND (c.kind = 'channel' OR c.admin_id <> @agent)`
	var ignored int64
	for _, step := range []struct {
		count     *int64
		statement string
	}{
		// Before the content, because it finds the pins by the sender.
		{&ignored, `UPDATE conversations c SET pinned = ARRAY(SELECT p.id FROM unnest(c.pinned) WITH ORDINALITY AS p (id, n) WHERE NOT EXISTS (
			SELECT FROM messages m WHERE m.id = p.id AND m.conversation_id = c.id AND m.sender_id = @agent) ORDER BY p.n)
			WHERE c.pinned <> '{}' AND EXISTS (SELECT FROM messages m WHERE m.conversation_id = c.id AND m.id = ANY (c.pinned) AND m.sender_id = @agent)`},
		{&erased.Messages, `UPDATE messages SET content = @removed, about = NULL, removed_at = coalesce(removed_at, @now) WHERE sender_id = @agent`},
		{&erased.Reactions, `DELETE FROM reactions WHERE agent_id = @agent`},
		{&erased.Blocks, `DELETE FROM blocks WHERE blocker_id = @agent OR blocked_id = @agent`},
		{&ignored, `DELETE FROM notices WHERE agent_id = @agent`},
		{&ignored, `UPDATE conversations c SET member_count = c.member_count - 1 WHERE ` + left + `
			AND c.id IN (SELECT conversation_id FROM memberships WHERE agent_id = @agent AND status = 'member')`},
		{&erased.Memberships, `DELETE FROM memberships m WHERE m.agent_id = @agent AND m.conversation_id IN (SELECT c.id FROM conversations c WHERE ` + left + `)`},
		// The registration has no account. Its wallet has paid for the account soon after it.
		{&ignored, `UPDATE payments SET response = NULL, payment_identifier = NULL, fingerprint = sha256(uuid_send(id)) WHERE agent_id IS NULL AND secret
			AND state NOT IN ('settling', 'unknown') AND created_at BETWEEN CAST(@created AS timestamptz) - interval '1 hour'
			AND CAST(@created AS timestamptz) + interval '1 hour'
			AND payer IN (SELECT payer FROM payments WHERE agent_id = @agent)`},
		{&erased.Payments, `UPDATE payments SET response = NULL, payment_identifier = NULL, key_hash = NULL, fingerprint = sha256(uuid_send(id))
			WHERE agent_id = @agent`},
		{&ignored, `UPDATE reserved_usernames SET agent_id = NULL WHERE agent_id = @agent`},
		{&ignored, `UPDATE suspensions SET message = '', erased = true WHERE agent_id = @agent`},
	} {
		done := s.db.WithContext(ctx).Exec(step.statement,
			map[string]any{"agent": account.ID, "now": s.Now(), "removed": removedContent, "created": account.CreatedAt})
		if done.Error != nil {
			return done.Error
		}
		*step.count = done.RowsAffected
	}
	return s.eraseAccount(ctx, account)
}

// checkErasable returns an error if a payment of the agent is not closed. Its request and payload are needed.
func (s *Store) checkErasable(ctx context.Context, agent uuid.UUID) error {
	open, err := gorm.G[Payment](s.db).Where("agent_id = ? AND state IN ('settling', 'unknown')", agent).Count(ctx, "id")
	if err != nil {
		return fmt.Errorf("look for open payments: %w", err)
	}
	owed, err := gorm.G[Payment](s.db).Where("agent_id = ? AND state = 'undeliverable' AND failure_reason <> ?", agent, Refunded).Count(ctx, "id")
	switch {
	case err != nil:
		return fmt.Errorf("look for undeliverable payments: %w", err)
	case open > 0:
		return ErrOpenPayments
	case owed > 0:
		return ErrOwedPayments
	}
	return nil
}

// lockConversationsOf locks the conversations that the agent is a member of or administers, in one order.
func (s *Store) lockConversationsOf(ctx context.Context, agent uuid.UUID) error {
	var ids []uuid.UUID
	err := s.gorm(ctx, &Conversation{}).Clauses(forNoKeyUpdate).Select("id").
		Where("admin_id = ? OR id IN (SELECT conversation_id FROM memberships WHERE agent_id = ?)", agent, agent).Order("id").Scan(&ids).Error
	if err != nil {
		return fmt.Errorf("lock conversations: %w", err)
	}
	return nil
}

// giveUpConversations hands the agent's group chats over to the members that joined first, and deletes its other group chats and its
// channels.
func (s *Store) giveUpConversations(ctx context.Context, agent uuid.UUID, erased *Erasure) error {
	conversations, err := gorm.G[Conversation](s.db).Where("admin_id = ?", agent).Order("id").Find(ctx)
	if err != nil {
		return fmt.Errorf("list administered conversations: %w", err)
	}
	for _, one := range conversations {
		heir := uuid.Nil
		if one.Kind == KindGroup && one.DeletedAt == nil {
			if heir, err = s.heir(ctx, one.ID, agent); err != nil {
				return err
			}
		}
		if heir != uuid.Nil {
			erased.HandedOver++
			if err := s.setAdmin(ctx, one.ID, agent, heir); err != nil {
				return err
			}
			continue
		}
		erased.Deleted++
		if err := s.emptyConversation(ctx, &one); err != nil {
			return err
		}
	}
	return nil
}

// heir returns the member that joined first and may become the admin, or uuid.Nil.
func (s *Store) heir(ctx context.Context, group, admin uuid.UUID) (uuid.UUID, error) {
	members, err := s.memberIDs(ctx, group)
	if err != nil {
		return uuid.Nil, err
	}
	for _, member := range members {
		if member == admin {
			continue
		}
		err := s.checkUsable(ctx, member)
		if err == nil {
			return member, nil
		}
		if _, unusable := errors.AsType[*Refusal](err); !unusable {
			return uuid.Nil, err
		}
	}
	return uuid.Nil, nil
}

// emptyConversation deletes a conversation for good, with its name and description, which its admin has written.
func (s *Store) emptyConversation(ctx context.Context, conversation *Conversation) error {
	deleted := s.Now()
	if conversation.DeletedAt != nil {
		deleted = *conversation.DeletedAt
	}
	err := s.changeConversation(ctx, conversation.ID, map[string]any{"name": erasedName, "description": "", "deleted_at": deleted})
	if err != nil {
		return err
	}
	if _, err = gorm.G[conversationRemoval](s.db).Where("conversation_id = ?", conversation.ID).Delete(ctx); err != nil {
		return err
	}
	_, err = gorm.G[Notice](s.db).Where("conversation_id = ?", conversation.ID).Update(ctx, "source_name", erasedName)
	return err
}

// erasedName replaces names, and begins the username of an erased account.
const erasedName = "erased"

// eraseAccount empties the account. Its username is random, so that nobody can have registered it before.
func (s *Store) eraseAccount(ctx context.Context, account *Agent) error {
	random := make([]byte, 12+32)
	_, _ = rand.Read(random)
	changes := map[string]any{
		"username": erasedName + "_" + hex.EncodeToString(random[:12]), "description": "", "is_discoverable": false,
		"key_hash": random[12:], "previous_key_hash": nil, "key_payment": nil,
	}
	if err := s.reserveUsername(ctx, account.Username, nil); err != nil {
		return err
	}
	return s.gorm(ctx, &Agent{}).Where("id = ?", account.ID).Updates(changes).Error
}
