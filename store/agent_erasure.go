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
	ErrOpenPayments = errors.New("payments of the account are open; the servers close them, or see parley payments resolve")
	ErrOwedPayments = errors.New("payments of the account are undeliverable: their money was taken for nothing; refund them first, " +
		"see parley payments refund")
	ErrNotSuspendedYet = errors.New("an account is suspended before it is erased, so that no call is under way")
)

// Erasure counts what EraseAgent has changed.
type Erasure struct {
	Messages, Reactions, Blocks, Memberships, Payments int64
	HandedOver, Deleted                                int64 // conversations that the agent administered
}

// EraseAgent erases a suspended account for good. Its id, its messages without content, and the amounts, payers and transactions of
// its payments stay: numbers of others and the ledger are whole. It returns ErrAgentNotFound, ErrErased, ErrNotSuspendedYet,
// ErrOpenPayments or ErrOwedPayments. Call FinishErasure SettledAfter it, and erase the stored responses with its messages with EraseReads.
func (s *Store) EraseAgent(ctx context.Context, by Operator, agent uuid.UUID) (erased Erasure, err error) {
	for range 5 { // after a deadlock
		erased = Erasure{}
		err = s.changeAccount(ctx, by, "agents.erase", agent, func(tx *Tx, entry *AuditEntry, account *Agent, before *Suspension) error {
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
		if !Deadlocked(err) {
			break
		}
	}
	return erased, err
}

// erase first changes what calls of others do not lock, because it finds it by reading whole tables. Then it locks the conversations,
// and finds the rest by keys.
func (tx *Tx) erase(ctx context.Context, account *Agent, erased *Erasure) error {
	if err := tx.checkErasable(ctx, account.ID); err != nil {
		return err
	}
	wrote, err := single(query[struct {
		Conversations []uuid.UUID
		Messages      int64
	}](ctx, tx, `
		WITH gone AS (
			UPDATE messages SET content = @removed, reply_to = NULL, about = NULL, removed_at = coalesce(removed_at, @now) WHERE sender_id = @agent
				RETURNING conversation_id
		)
		SELECT array_agg(DISTINCT conversation_id) AS conversations, count(*) AS messages FROM gone`,
		named{"agent": account.ID, "now": tx.Now(), "removed": removedContent}))
	if err != nil {
		return fmt.Errorf("erase messages: %w", err)
	}
	erased.Messages = wrote.Messages
	err = tx.eraseRows(ctx, named{"agent": account.ID, "created": account.CreatedAt}, []erasureStep{
		{&erased.Reactions, `DELETE FROM reactions WHERE agent_id = @agent`},
		// The registration has no account. Its wallet has paid for the account soon after it.
		{nil, `UPDATE payments SET response = NULL, payment_identifier = NULL, idempotency_key = NULL, fingerprint = sha256(uuid_send(id))
			WHERE agent_id IS NULL AND secret
			AND state NOT IN ('settling', 'unknown') AND created_at BETWEEN CAST(@created AS timestamptz) - interval '1 hour'
			AND CAST(@created AS timestamptz) + interval '1 hour'
			AND payer IN (SELECT payer FROM payments WHERE agent_id = @agent)`},
		{&erased.Payments, `UPDATE payments SET response = NULL, payment_identifier = NULL, idempotency_key = NULL, key_hash = NULL,
			fingerprint = sha256(uuid_send(id))
			WHERE agent_id = @agent`},
		{nil, `UPDATE reserved_usernames SET agent_id = NULL WHERE agent_id = @agent`},
		{nil, `UPDATE suspensions SET message = '', erased = true WHERE agent_id = @agent`},
		{&erased.Blocks, deleteBlocks}, // the last scan, because others wait for it when they unblock the agent
	})
	if err != nil {
		return err
	}
	if err := tx.leaveForGood(ctx, account.ID, wrote.Conversations, erased); err != nil {
		return err
	}
	return tx.eraseAccount(ctx, account)
}

const deleteBlocks = `DELETE FROM blocks WHERE blocker_id = @agent OR blocked_id = @agent`

// erasedName replaces names, and begins the username of an erased account.
const erasedName = "erased"

// eraseAccount empties the account. Its username is random, so that nobody can have registered it before.
func (tx *Tx) eraseAccount(ctx context.Context, account *Agent) error {
	if err := tx.reserveUsername(ctx, account.Username, nil); err != nil {
		return err
	}
	random := make([]byte, 12+32)
	_, _ = rand.Read(random)
	return tx.gorm(ctx, &Agent{}).Where("id = ?", account.ID).Updates(map[string]any{
		"username": erasedName + "_" + hex.EncodeToString(random[:12]), "description": "", "is_discoverable": false,
		"key_hash": random[12:], "previous_key_hash": nil, "key_payment": nil,
	}).Error
}

// FinishErasure erases what others wrote about an erased account while they did not know that it was erased, and the names of its deleted
// conversations where others have them. It may be repeated.
func (s *Store) FinishErasure(ctx context.Context, agent uuid.UUID) error {
	if err := s.Transaction(ctx, func(tx *Tx) error { return tx.leaveForGood(ctx, agent, nil, &Erasure{}) }); err != nil {
		return err
	}
	return s.eraseRows(ctx, named{"agent": agent, "name": erasedName}, []erasureStep{
		{nil, deleteBlocks},
		{nil, `UPDATE notices SET source_name = @name WHERE source_name <> @name AND conversation_id IN (SELECT id FROM conversations
			WHERE admin_id = @agent)`},
		{nil, `UPDATE messages m SET content = replace(m.content, '"' || (m.about->>'name') || '"', '"' || @name || '"'),
			about = jsonb_set(m.about, '{name}', to_jsonb(CAST(@name AS text)))
			FROM conversations c WHERE c.admin_id = @agent AND m.about->>'source' = CAST(c.id AS text) AND m.about->>'name' <> @name`},
	})
}

// leaveForGood hands the agent's group chats over to the members that joined first, deletes its other group chats and its channels for
// good, with names and descriptions, which it has written, and takes its pins and memberships away. wrote are the conversations that it
// wrote in.
func (tx *Tx) leaveForGood(ctx context.Context, agent uuid.UUID, wrote []uuid.UUID, erased *Erasure) error {
	var locked []uuid.UUID // what the agent wrote in, is a member of, or administers, in one order
	err := tx.gorm(ctx, &Conversation{}).Clauses(forNoKeyUpdate).Select("id").
		Where("id = ANY (?) OR admin_id = ? OR id IN (SELECT conversation_id FROM memberships WHERE agent_id = ?)", UUIDs(wrote), agent, agent).
		Order("id").Scan(&locked).Error
	if err != nil {
		return fmt.Errorf("lock conversations: %w", err)
	}
	heirs, err := tx.heirs(ctx, agent, locked)
	if err != nil {
		return err
	}
	for _, one := range heirs {
		if err := tx.setAdmin(ctx, one.ConversationID, agent, one.AgentID); err != nil {
			return err
		}
	}
	erased.HandedOver = int64(len(heirs))
	return tx.eraseRows(ctx, named{"agent": agent, "conversations": locked, "name": erasedName, "now": tx.Now()}, []erasureStep{
		// The count makes PostgreSQL look each pin up; with NOT EXISTS it reads all messages of the conversation.
		{nil, `UPDATE conversations c SET pinned = ARRAY(SELECT p.id FROM unnest(c.pinned) WITH ORDINALITY AS p (id, n) WHERE (
			SELECT count(*) FROM messages m WHERE m.id = p.id AND m.conversation_id = c.id AND m.sender_id = @agent) = 0 ORDER BY p.n)
			WHERE c.id = ANY (@conversations) AND c.pinned <> '{}' AND EXISTS (
			SELECT FROM messages m WHERE m.conversation_id = c.id AND m.id = ANY (c.pinned) AND m.sender_id = @agent)`},
		{nil, `DELETE FROM conversation_removals r USING conversations c WHERE c.id = ANY (@conversations) AND c.admin_id = @agent
			AND r.conversation_id = c.id`},
		{&erased.Deleted, `UPDATE conversations SET name = @name, description = '', deleted_at = coalesce(deleted_at, @now)
			WHERE id = ANY (@conversations) AND admin_id = @agent`},
		// The agent stays a member of its private chats, which the other agents read, and of the group chats that were deleted.
		{&erased.Memberships, `
			WITH gone AS (
				DELETE FROM memberships m USING conversations c WHERE m.agent_id = @agent AND m.conversation_id = c.id
					AND m.conversation_id = ANY (@conversations)
					AND c.kind <> 'private' AND (c.kind = 'channel' OR c.admin_id <> @agent) RETURNING m.conversation_id, m.status
			), counted AS (
				UPDATE conversations SET member_count = member_count - 1 WHERE id IN (SELECT conversation_id FROM gone WHERE status = 'member')
			)
			SELECT FROM gone`},
		{nil, `DELETE FROM notices WHERE agent_id = @agent`},
	})
}

// erasureStep is a statement, and where the number of its rows goes.
type erasureStep struct {
	rows      *int64
	statement string
}

func (r *Reader) eraseRows(ctx context.Context, values named, steps []erasureStep) error {
	for _, step := range steps {
		rows, err := exec(ctx, r, step.statement, values)
		if err != nil {
			return fmt.Errorf("erase rows: %w", err)
		}
		if step.rows != nil {
			*step.rows = rows
		}
	}
	return nil
}

// checkErasable returns an error if a payment of the agent is not closed. Its request and payload are needed.
func (r *Reader) checkErasable(ctx context.Context, agent uuid.UUID) error {
	open := gorm.G[Payment](r.db).Where("agent_id = ? AND state IN ('settling', 'unknown')", agent)
	if err := refuseIf(ctx, ErrOpenPayments, "look for open payments", open); err != nil {
		return err
	}
	owed := gorm.G[Payment](r.db).Where("agent_id = ? AND state = 'undeliverable' AND failure_reason <> ?", agent, Refunded)
	return refuseIf(ctx, ErrOwedPayments, "look for undeliverable payments", owed)
}

// heirs returns for each group chat of the admin among these conversations the member that joined first and may become the admin, if there
// is one.
func (r *Reader) heirs(ctx context.Context, admin uuid.UUID, conversations []uuid.UUID) ([]Membership, error) {
	heirs, err := query[Membership](ctx, r, `
		SELECT DISTINCT ON (m.conversation_id) m.conversation_id, m.agent_id FROM conversations c JOIN memberships m ON m.conversation_id = c.id
		WHERE c.id = ANY (@conversations) AND c.admin_id = @admin AND c.kind = 'group' AND c.deleted_at IS NULL AND m.status = 'member'
			AND m.agent_id <> @admin
			AND NOT EXISTS (SELECT FROM suspensions s WHERE s.agent_id = m.agent_id)
		ORDER BY m.conversation_id, m.joined_at, m.agent_id`, named{"admin": admin, "conversations": conversations})
	return heirs, wrap("look for new admins", err)
}

// CountErasure counts what EraseAgent would change, and changes nothing. It returns ErrOpenPayments or ErrOwedPayments.
func (s *Store) CountErasure(ctx context.Context, agent uuid.UUID) (counted Erasure, err error) {
	if err := s.checkErasable(ctx, agent); err != nil {
		return counted, err
	}
	var administered, handedOver []uuid.UUID
	if err := gorm.G[Conversation](s.db).Select("id").Where("admin_id = ?", agent).Scan(ctx, &administered); err != nil {
		return counted, fmt.Errorf("list administered conversations: %w", err)
	}
	heirs, err := s.heirs(ctx, agent, administered)
	if err != nil {
		return counted, err
	}
	for _, one := range heirs {
		handedOver = append(handedOver, one.ConversationID)
	}
	counted, err = single(query[Erasure](ctx, s, `
		SELECT (SELECT count(*) FROM messages WHERE sender_id = @agent) AS messages, (SELECT count(*) FROM reactions
			WHERE agent_id = @agent) AS reactions,
			(SELECT count(*) FROM blocks WHERE blocker_id = @agent OR blocked_id = @agent) AS blocks,
			(SELECT count(*) FROM payments WHERE agent_id = @agent) AS payments,
			(SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id WHERE m.agent_id = @agent
				AND (c.kind = 'channel' OR c.kind = 'group' AND (c.admin_id <> @agent OR c.id = ANY (@handed)))) AS memberships,
			CAST(@heirs AS bigint) AS handed_over, CAST(@deleted AS bigint) AS deleted`,
		named{"agent": agent, "handed": handedOver, "heirs": len(heirs), "deleted": len(administered) - len(heirs)}))
	return counted, wrap("count what would be erased", err)
}
