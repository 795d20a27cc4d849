package store

import (
	"strconv"
	"strings"
)

// firstKeys is how many keys of a conversation fewestKeys reads before it knows which conversations have further messages on the page.
const firstKeys = 8

// fewestKeys selects the keys of a page among many conversations with many unread messages. The page ends with message @last, oldest first.
// Within a conversation the order by number is the order by time. So the page has messages of the @last conversations alone whose oldest
// unread messages are the oldest. Of each of them it reads the first keys. Of a conversation whose first keys are all among the first @last
// it reads as many more as may be missing.
//
// For the worst distribution of messages that is @last times firstKeys, and the square of @last divided by twice firstKeys.
var fewestKeys = strings.NewReplacer("$firstKeys", strconv.Itoa(firstKeys)).Replace(`oldest AS (
		SELECT n.kind, n.name, n.conversation_id, n.read_number, n.unread FROM total t CROSS JOIN news n
		CROSS JOIN LATERAL (` + unreadKeys("n", "read_number", "1") + `) key
		WHERE t.total > @skip ORDER BY key.created_at, n.conversation_id LIMIT @last
	), first AS MATERIALIZED (
		SELECT kind, name, conversation_id, unread, number, created_at, size, place, position FROM (
			SELECT n.kind, n.name, n.conversation_id, n.unread, key.number, key.created_at, key.size, key.place,
				row_number() OVER (ORDER BY key.created_at, n.conversation_id, key.number) AS position
			FROM oldest n CROSS JOIN LATERAL (
				SELECT number, created_at, size, row_number() OVER (ORDER BY number) AS place
				FROM (` + unreadKeys("n", "read_number", "least(n.unread, $firstKeys)") + `) k
			) key
		) k WHERE position <= @last
	), keys AS (
		SELECT kind, name, conversation_id, number, created_at, size FROM first
		UNION ALL
		SELECT f.kind, f.name, f.conversation_id, key.number, key.created_at, key.size FROM first f
		CROSS JOIN LATERAL (` + unreadKeys("f", "number", "least(f.unread - $firstKeys, @last - f.position)") + `) key
		WHERE f.place = $firstKeys
	)`)
