package store

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ExportedRecord is one record of an agent. Data is a JSON object.
type ExportedRecord struct {
	Kind string
	Data json.RawMessage
}

// exports select everything about the agent @agent, without hashes of keys and TANs, signatures, and stored requests and responses. Most
// of them read a whole table, because only the tables that calls look into have an index by agent.
var exports = []struct{ kind, query string }{
	{"account", `SELECT id, username, description, is_discoverable, created_at FROM agents WHERE id = @agent`},
	{"suspension", `SELECT agent_id, message, was_listed, erased, created_at FROM suspensions WHERE agent_id = @agent`},
	{"former_username", `SELECT agent_id, created_at FROM reserved_usernames WHERE agent_id = @agent`},
	{"registration", `SELECT username, payer, expires_at FROM registrations WHERE payer IN (SELECT payer FROM payments
		WHERE agent_id = @agent)`},
	{"block", `SELECT blocker_id, blocked_id, created_at FROM blocks WHERE blocker_id = @agent OR blocked_id = @agent`},
	{"conversation", `SELECT id, kind, name, description, admin_id, is_discoverable, last_number, last_message_at, member_count, pinned,
		created_at, deleted_at
		FROM conversations WHERE admin_id = @agent ORDER BY id`},
	{"private_chat", `SELECT low_agent, high_agent, conversation_id FROM private_pairs WHERE low_agent = @agent OR high_agent = @agent
		ORDER BY conversation_id`},
	{"membership", `SELECT conversation_id, agent_id, status, read_number, joined_number, joined_at, unread_own, quiet FROM memberships
		WHERE agent_id = @agent ORDER BY conversation_id`},
	{"message", `SELECT conversation_id, number, id, sender_id, content, reply_to, about, created_at, removed_at FROM messages
		WHERE sender_id = @agent ORDER BY id`},
	{"reaction", `SELECT conversation_id, number, agent_id, emoji, created_at FROM reactions WHERE agent_id = @agent
		ORDER BY conversation_id, number`},
	{"notice", `SELECT agent_id, number, type, conversation_id, source_name, actor_id, created_at FROM notices WHERE agent_id = @agent
		OR actor_id = @agent ORDER BY number`},
	{"payment", `SELECT id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation, agent_id,
			payment_channel_id, cumulative_amount, deposit_amount, state, transaction, failure_reason, attempts, created_at, updated_at
		FROM payment_records WHERE agent_id = @agent ORDER BY created_at, id`},
	{"refund", `SELECT payer, payment_id, amount, transaction, created_at FROM refunds r
		WHERE EXISTS (SELECT FROM payments p WHERE p.id = r.payment_id AND p.payer = r.payer AND p.agent_id = @agent)`},
	{"payment_channel", `SELECT id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer, withdraw_delay, salt, charged,
			balance, claimed, withdraw_requested_at, refund_nonce, synced_at, state, refund_amount, refunded_at, unclaimed_since, used_at, created_at
		FROM payment_channels WHERE id IN (SELECT payment_channel_id FROM payments WHERE agent_id = @agent) ORDER BY created_at`},
	{"audit", `SELECT id, target_kind, target_id, action, agent_id, actor, reason, details, created_at FROM audit WHERE agent_id = @agent
		ORDER BY created_at, id`},
}

// ExportAgent gives everything about an agent to write, from one snapshot of the database. It keeps one record in memory.
func (s *Store) ExportAgent(ctx context.Context, agent uuid.UUID, write func(ExportedRecord) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := pgx.BeginTxFunc(ctx, s.pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SET LOCAL TimeZone = 'UTC'"); err != nil {
			return err
		}
		for _, export := range exports {
			rows, err := tx.Query(ctx, "SELECT CAST(row_to_json(t) AS text) FROM ("+export.query+") t", named{"agent": agent})
			if err != nil {
				return err
			}
			var data string
			_, err = pgx.ForEachRow(rows, []any{&data}, func() error { return write(ExportedRecord{export.kind, json.RawMessage(data)}) })
			if err != nil {
				return err
			}
		}
		return nil
	})
	return wrap("export the agent", err)
}
