package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// StoredReads selects the responses of operations that were stored at this time or later. Any of them can show what was removed
// since: the database cannot tell, because they are compressed. Conversation, if it is not uuid.Nil, selects the responses to its members,
// subscribers and admin.
type StoredReads struct {
	Operations   []string // parley.Reads
	Conversation uuid.UUID
	Since        time.Time
}

// readsPage is how many payments one statement of EraseReads looks at.
const readsPage = 10_000

// eraseReads looks at the next payments, in the order of their creation, and erases the responses among them.
const eraseReads = `
	WITH page AS (
		SELECT id, payer, created_at, response IS NOT NULL AND operation = ANY (CAST(@reads AS text[])) AND (@conversation = CAST(@none AS uuid)
			OR EXISTS (SELECT FROM memberships m WHERE m.conversation_id = @conversation AND m.agent_id = payments.agent_id)
			OR EXISTS (SELECT FROM conversations c WHERE c.id = @conversation AND c.admin_id = payments.agent_id)) AS hit
		FROM payments WHERE (created_at, id) > (@after, @last) ORDER BY created_at, id LIMIT @limit
	), erased AS (
		UPDATE payments p SET response = NULL FROM page WHERE page.hit AND p.id = page.id AND p.payer = page.payer RETURNING 1
	)
	SELECT count(*) AS looked, (SELECT count(*) FROM erased) AS erased, max(created_at) AS after,
		(SELECT id FROM page ORDER BY created_at DESC, id DESC LIMIT 1) AS last FROM page`

// openLife is the longest validity of a payment that the server accepts. A response is stored when its payment has ended.
const openLife = 24 * time.Hour

// EraseReads erases stored responses, and returns how many. The same payment then returns 409 payment_reused. It looks at all payments
// since then, many at a time, each time in a transaction of its own.
func (s *Store) EraseReads(ctx context.Context, of StoredReads) (erased int64, err error) {
	after, last := of.Since, uuid.Nil
	if !after.IsZero() {
		after = after.Add(-openLife)
	}
	for {
		pages, err := query[struct {
			Looked, Erased int64
			After          *time.Time
			Last           *uuid.UUID
		}](ctx, s, eraseReads, named{
			"reads": of.Operations, "conversation": of.Conversation, "none": uuid.Nil, "after": after, "last": last, "limit": readsPage,
		})
		if err != nil {
			return erased, fmt.Errorf("erase stored responses: %w", err)
		}
		erased += pages[0].Erased
		if pages[0].Looked < readsPage {
			return erased, nil
		}
		after, last = *pages[0].After, *pages[0].Last
	}
}

// OpenReads counts the payments of operations that are open since before a time: their responses are still to be stored.
func (s *Store) OpenReads(ctx context.Context, operations []string, before time.Time) (_ int64, err error) {
	defer wrapInto(&err, "look for open reads")
	return single(query[int64](ctx, s, `SELECT count(*) FROM payments
		WHERE state IN ('settling', 'unknown') AND operation = ANY (CAST(@operations AS text[])) AND created_at < @before`,
		named{"operations": operations, "before": before}))
}
