package store

import (
	"strings"

	"github.com/google/uuid"
)

// readPage is what a call that shares its commit marks as read: ranges that an agent got, at most one for each conversation. Once means
// that no other call may have returned them: see Tx.ReadUnread.
type readPage struct {
	agent  uuid.UUID
	ranges []ReadRange
	once   bool
}

// moveMarkers are the parts of statements that mark ranges as read: of rows of range, with the agent and a number n. In each conversation
// the agent's read marker moves forward to the newest number of the range, if only own messages are between the marker and the range. If
// only own messages follow that number, the marker moves past them, as it does when they are sent.
//
//   - behind are the ranges that the agent has not read to their ends.
//   - moved are the memberships whose markers move, with their new values.
//
// Both come from the snapshot of the statement, which must contain every own message that unread_own counts. So an earlier statement
// locks the memberships, or this one compares them with what it locks.
const moveMarkers = `
	behind AS (
		SELECT r.n, r.agent_id, c.id AS conversation_id, c.last_number, r.oldest - 1 AS before, least(r.newest, c.last_number) AS number,
			m.read_number AS marker, ` + readUpTo + ` AS read_number, m.unread_own
		FROM range r JOIN conversations c ON c.id = r.conversation_id
		JOIN memberships m ON m.conversation_id = c.id AND m.agent_id = r.agent_id AND m.status = 'member'
			AND m.read_number < least(r.newest, c.last_number)
	), moved AS (
		SELECT n, agent_id, conversation_id, CASE WHEN number + own = last_number THEN last_number ELSE number END AS read_number,
			CASE WHEN number + own = last_number THEN 0 ELSE own END AS unread_own
		FROM (
			SELECT b.n, b.agent_id, b.conversation_id, b.number, b.last_number, CASE WHEN b.unread_own = 0 OR b.number = b.last_number THEN 0
				ELSE b.unread_own - (
				SELECT count(*) FROM messages o WHERE o.conversation_id = b.conversation_id AND o.sender_id = b.agent_id
				AND o.number > b.read_number AND o.number <= b.number) END AS own
			FROM behind b
			WHERE b.before <= b.read_number OR (b.before - b.read_number <= b.unread_own AND b.before - b.read_number = (
				SELECT count(*) FROM messages o WHERE o.conversation_id = b.conversation_id AND o.sender_id = b.agent_id
				AND o.number > b.read_number AND o.number <= b.before))
		) marked
	)`

// rangesOfAgent are the ranges of one agent: see markValues.
const rangesOfAgent = `range AS (
		SELECT 1 AS n, CAST(@agent AS uuid) AS agent_id, r.conversation_id, r.oldest, r.newest FROM unnest(
			(SELECT CAST(@conversations AS uuid[])), (SELECT CAST(@oldest AS bigint[])), (SELECT CAST(@newest AS bigint[]))
		) AS r (conversation_id, oldest, newest)
	), `

// markRead marks ranges of one agent. An earlier statement locks the memberships.
const markRead = `
	WITH ` + rangesOfAgent + moveMarkers + `
	UPDATE memberships m SET read_number = v.read_number, unread_own = v.unread_own
	FROM moved v WHERE m.conversation_id = v.conversation_id AND m.agent_id = v.agent_id`

// The statements that close the payments of pages and mark the pages as read. A payment is closed only if its whole page can be marked. The
// statements wait for no lock, so they cannot deadlock: what is locked, or has changed since the snapshot, needs a transaction of its own.
//
//   - held are the memberships whose markers are behind, as they are now.
//   - unready are the items with a membership that is locked or has changed, and those whose messages another call returns or has returned.
const heldMarkers = moveMarkers + `, held AS MATERIALIZED (
		SELECT m.conversation_id, m.agent_id, m.read_number, m.unread_own
		FROM behind b JOIN memberships m ON m.conversation_id = b.conversation_id AND m.agent_id = b.agent_id AND m.status = 'member'
		FOR NO KEY UPDATE OF m SKIP LOCKED
	), turn AS MATERIALIZED (
		SELECT n, pg_try_advisory_xact_lock(` + unreadLock + `) AS taken FROM (SELECT DISTINCT n, agent_id AS agent FROM range WHERE once) t
	), unready AS MATERIALIZED (
		SELECT b.n FROM behind b LEFT JOIN held h ON h.conversation_id = b.conversation_id AND h.agent_id = b.agent_id
			AND h.read_number = b.marker AND h.unread_own = b.unread_own
		WHERE h.agent_id IS NULL
		UNION ALL
		SELECT r.n FROM range r LEFT JOIN behind b ON b.n = r.n AND b.conversation_id = r.conversation_id AND b.read_number < r.oldest
		WHERE r.once AND b.n IS NULL
		UNION ALL
		SELECT n FROM turn WHERE NOT taken
	)`

// rangesOfBatch are the ranges of all items.
const rangesOfBatch = `range AS (
		SELECT n, agent_id, conversation_id, oldest, newest, once FROM unnest((SELECT CAST(@places AS bigint[])),
			(SELECT CAST(@agents AS uuid[])), (SELECT CAST(@conversations AS uuid[])), (SELECT CAST(@oldest AS bigint[])),
			(SELECT CAST(@newest AS bigint[])), (SELECT CAST(@once AS boolean[]))) AS r (n, agent_id, conversation_id, oldest, newest, once)
	), `

// markClosed marks the pages whose payments are in closed.
const markClosed = `
	marked AS (
		UPDATE memberships m SET read_number = v.read_number, unread_own = v.unread_own
		FROM moved v JOIN item i ON i.n = v.n JOIN closed c ON c.id = i.payment
		WHERE m.conversation_id = v.conversation_id AND m.agent_id = v.agent_id
	)`

var (
	chargePages = `
		WITH item AS (SELECT ` + chargeFields.names() + `, n FROM ` + chargeFields.items() + `), due AS MATERIALIZED (` + dueVouchers + `), ` +
		rangesOfBatch + heldMarkers + `,
		recorded AS (` + strings.Replace(recordVouchers, "$join", "WHERE d.n NOT IN (SELECT n FROM unready)", 1) + `),
		closed AS (` + raiseCharged + `), ` + markClosed + `
		SELECT id, balance, claimed, refund_nonce FROM closed`

	deliverPages = `
		WITH item AS (SELECT ` + deliveryFields.names() + `, n FROM ` + deliveryFields.items() + `), ` + rangesOfBatch + heldMarkers + `,
		due AS MATERIALIZED (
			SELECT d.payment, d.n FROM item d JOIN payments p ON p.id = d.payment AND ` + deliverable + ` FOR NO KEY UPDATE OF p SKIP LOCKED
		), closed AS (
			` + closeDelivered + ` JOIN due u ON u.payment = d.payment
			WHERE p.id = d.payment AND u.n NOT IN (SELECT n FROM unready) RETURNING p.id
		), ` + markClosed + `
		SELECT id FROM closed`
)

// pagesOf returns the values of rangesOfBatch.
func pagesOf(batch []batchItem[Closing]) pairs {
	var places []int64
	var agents []uuid.UUID
	var ranges []ReadRange
	var once []bool
	for i, item := range batch {
		page := item.value.page
		if page == nil {
			continue
		}
		for _, read := range page.ranges {
			places, agents, ranges, once = append(places, int64(i)+1), append(agents, page.agent), append(ranges, read), append(once, page.once)
		}
	}
	values := pairs{{"places", places}, {"agents", agents}, {"once", once}}
	for name, value := range rangeValues(ranges) {
		values = append(values, pair{name, value})
	}
	return values
}
