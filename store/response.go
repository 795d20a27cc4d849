package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// How long the ledger keeps what it need not keep for good, from the payment's last change on. The contract says so, too.
const (
	SecretLifetime   = 10 * time.Minute // a response with a TAN or an API key
	responseLifetime = time.Hour        // any other response of more than 512 bytes
	failureLifetime  = time.Hour        // a payment that was refused, at least until it is valid no more: nothing was taken
)

// cleanUps erase what is kept no longer, at most @limit rows at a time. A row that somebody else has locked waits for the
// next time.
var cleanUps = []string{
	`UPDATE payments SET answer = NULL WHERE id = ANY (ARRAY(
		SELECT id FROM payments WHERE secret AND answer IS NOT NULL AND updated_at < now() - @secret::interval
		ORDER BY updated_at LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id`,
	`UPDATE payments SET answer = NULL WHERE id = ANY (ARRAY(
		SELECT id FROM payments WHERE octet_length(answer) > 512 AND updated_at < now() - @response::interval
		ORDER BY updated_at LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id`,
	`DELETE FROM payments WHERE id = ANY (ARRAY(
		SELECT id FROM payments WHERE state = 'failed' AND updated_at < now() - @failure::interval AND valid_before < now()
		ORDER BY updated_at LIMIT @limit FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id`,
}

// CleanUp erases stored responses and failed payments that are kept no longer, at most limit of each, and returns how many
// of the kind of which there were most.
func (s *Store) CleanUp(ctx context.Context, limit int) (most int, err error) {
	for _, statement := range cleanUps {
		erased, err := find[uuid.UUID](ctx, s, statement, pgx.NamedArgs{
			"limit": limit, "secret": SecretLifetime, "response": responseLifetime, "failure": failureLifetime,
		})
		if err != nil {
			return 0, fmt.Errorf("clean the ledger up: %w", err)
		}
		most = max(most, len(erased))
	}
	return most, nil
}

// eraseResponse erases a stored response whose secret has served.
func (s *Store) eraseResponse(ctx context.Context, payment *uuid.UUID) error {
	if payment == nil {
		return nil
	}
	_, err := find[uuid.UUID](ctx, s, `UPDATE payments SET answer = NULL WHERE id = @id AND answer IS NOT NULL RETURNING id`, pgx.NamedArgs{"id": *payment})
	if err != nil {
		return fmt.Errorf("erase response: %w", err)
	}
	return nil
}
