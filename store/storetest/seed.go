package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Seeding is how much data Seed creates. Conversations counts private chats and group chats; one channel is added. There are at least
// three agents, at most as many subscribers as agents, and one private chat for each pair at most.
type Seeding struct {
	Agents, Conversations, Messages, Subscribers int64
}

// Seed fills an empty, migrated database for measurements and query plans at a realistic size. A few conversations hold most messages, a
// few agents are in most groups, and most messages are read. The data looks as if it had been sent: numbers have no gaps, and counters are
// correct. The accounts have no usable API key.
//
// Seed runs in one transaction, as the owner of the tables. It drops the indexes that no constraint needs and creates them again at the
// end, which is much faster than to update them for each row. It calls began before each step.
func Seed(ctx context.Context, databaseURL string, size Seeding, began func(step string)) error {
	connection, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	values := pgx.NamedArgs{"agents": size.Agents, "conversations": size.Conversations, "messages": size.Messages,
		"subscribers": size.Subscribers}
	err = pgx.BeginFunc(ctx, connection, func(tx pgx.Tx) error {
		var inhabited bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM agents)`).Scan(&inhabited); err != nil || inhabited {
			return errors.Join(errors.New("use an empty database"), err)
		}
		for _, step := range seedSteps {
			began(step.name)
			if _, err := tx.Exec(ctx, step.statement, values); err != nil {
				return fmt.Errorf("seed %s: %w", step.name, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	began("statistics") // autovacuum would collect them later, in the middle of a measurement
	_, err = connection.Exec(ctx, `VACUUM (ANALYZE) agents, conversations, private_pairs, memberships, messages`)
	return err
}

// seedSteps fill the tables. Agents and conversations have positions, from which the members are computed without being
// stored: member k of a conversation is the agent at position (base + k * stride) modulo the number of agents. The
// strides ensure that the members of a conversation differ, and so do the pairs of private chats.
var seedSteps = []struct{ name, statement string }{
	{"preparation", `SELECT set_config('work_mem', '128MB', true), set_config('maintenance_work_mem', '256MB', true)`},

	{"dropped indexes", `DO $$ BEGIN
		CREATE TEMP TABLE seed_indexes ON COMMIT DROP AS
		SELECT indexrelid AS id, CAST(CAST(indexrelid AS regclass) AS text) AS name, pg_get_indexdef(indexrelid) AS definition FROM pg_index
		WHERE indrelid IN ('agents'::regclass, 'conversations'::regclass, 'memberships'::regclass, 'messages'::regclass) AND NOT indisunique;
		EXECUTE (SELECT string_agg('DROP INDEX ' || name, '; ') FROM seed_indexes);
	END $$`},

	{"names", `
		CREATE TEMP TABLE seed_agents ON COMMIT DROP AS
		SELECT position, ` + uuidAt("created_at") + ` AS id, created_at
		FROM (
			SELECT position, now() - interval '400 days' + interval '200 days' * position / CAST(@agents AS bigint) AS created_at
			FROM generate_series(0, CAST(@agents AS bigint) - 1) AS position
		) AS agents`},

	{"agents", `
		INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
		SELECT id, ` + pick("weather", "train", "museum", "harvest", "ledger", "harbour", "recipe", "garden", "chess", "tax", "map",
		"night") + ` || '_' ||
			` + pick("oracle", "guide", "keeper", "planner", "scout", "clerk", "pilot", "tutor", "courier", "broker") + ` || '_' || position,
			'I ' || ` + pick("forecast", "plan", "compare", "translate", "book", "watch", "explain", "negotiate") + ` || ' ' ||
			` + pick("journeys", "prices", "harvests", "contracts", "timetables", "energy markets", "museum visits",
		"spare parts") + ` || ' in ' || ` + city + ` || '.',
			random() < 0.8, sha256(uuid_send(gen_random_uuid())), created_at
		FROM seed_agents ORDER BY position`},

	{"plan", `
		CREATE TEMP TABLE seed_conversations ON COMMIT DROP AS
		WITH drawn AS (
			SELECT position, kind, CASE kind WHEN 'channel' THEN 0.1 ELSE 1.0 / position END AS weight,
				row_number() OVER (PARTITION BY kind ORDER BY position) - 1 AS turn,
				CASE kind WHEN 'private' THEN 2 WHEN 'channel' THEN CAST(@subscribers AS bigint)
					ELSE least(CAST(@agents AS bigint), 3 + CAST(floor(60 * random() ^ 3) AS bigint)) END AS size,
				now() - interval '1 day' - interval '180 days' * random() AS created_at
			FROM (
				SELECT position, CASE WHEN position > CAST(@conversations AS bigint) THEN 'channel' WHEN position % 10 IN (3, 6, 9) THEN 'group'
					ELSE 'private' END AS kind
				FROM generate_series(1, CAST(@conversations AS bigint) + 1) AS position
			) AS kinds
		), shared AS (
			SELECT position, kind, turn, size, created_at, CAST(round(CAST(@messages
				AS bigint) * sum(weight) OVER (ORDER BY position) / sum(weight) OVER ()) AS bigint) AS messages_so_far FROM drawn
		)
		SELECT ` + uuidAt("created_at") + ` AS id, kind, size, created_at,
			messages_so_far - lag(messages_so_far, 1, CAST(0 AS bigint)) OVER (ORDER BY position) AS last_number,
			CASE kind WHEN 'private' THEN turn % CAST(@agents AS bigint) WHEN 'group' THEN CAST(floor(CAST(@agents AS bigint) * random() ^ 3)
				AS bigint) ELSE 0 END AS base,
			CASE kind WHEN 'private' THEN 1 + turn / CAST(@agents AS bigint)
				WHEN 'group' THEN 1 + CAST(floor(random() * ((CAST(@agents AS bigint) - 1) / (size - 1))) AS bigint) ELSE 1 END AS stride
		FROM shared`},

	{"conversations", `
		INSERT INTO conversations (id, kind, name, description, admin_id, is_discoverable, last_number, member_count, created_at)
		SELECT c.id, c.kind, CASE WHEN c.kind <> 'private' THEN ` + city + ` || ' ' || ` +
		pick("planners", "weather", "logistics", "book club", "energy desk", "night trains", "markets",
			"gardeners") + ` || ' ' || CAST(floor(random() * 1000) AS bigint) END,
			CASE WHEN c.kind <> 'private' THEN ` + pick("We meet every day.", "Prices, dates and who does what.", "Questions are welcome.",
		"Only what matters.") + ` END,
			a.id, c.kind <> 'private' AND random() < 0.8, c.last_number, c.size, c.created_at
		FROM seed_conversations c
		LEFT JOIN seed_agents a ON a.position = CASE c.kind WHEN 'group' THEN c.base WHEN 'channel' THEN CAST(@agents AS bigint) - 1 END
		ORDER BY c.created_at`},

	{"private chats", `
		INSERT INTO private_pairs (low_agent, high_agent, conversation_id)
		SELECT least(a.id, b.id), greatest(a.id, b.id), c.id FROM seed_conversations c
		JOIN seed_agents a ON a.position = c.base
		JOIN seed_agents b ON b.position = (c.base + c.stride) % CAST(@agents AS bigint)
		WHERE c.kind = 'private'`},

	// In the order of time, as real messages arrive. So the messages of a conversation are scattered in the table.
	{"messages", `
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT conversation_id, number, ` + uuidAt("created_at") + `, sender_id, ` + text + `, created_at
		FROM (
			SELECT m.conversation_id, m.number, a.id AS sender_id, m.created_at
			FROM (
				SELECT c.id AS conversation_id, number, c.created_at + (now() - c.created_at) * ((number - 1 + random()) / c.last_number) AS created_at,
					CASE c.kind WHEN 'channel' THEN CAST(@agents AS bigint) - 1
						ELSE (c.base + c.stride * CAST(floor(c.size * random() * random()) AS bigint)) % CAST(@agents AS bigint) END AS sender
				FROM seed_conversations c, generate_series(1, c.last_number) AS number
			) AS m JOIN seed_agents a ON a.position = m.sender
			ORDER BY m.created_at
		) AS sent`},

	{"times", `
		UPDATE conversations c SET last_message_at = m.created_at
		FROM messages m WHERE m.conversation_id = c.id AND m.number = c.last_number`},

	{"memberships", `
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, unread_own, joined_number, joined_at)
		SELECT p.id, a.id, 'member', p.read_number, (
				SELECT count(*) FROM messages m WHERE m.conversation_id = p.id AND m.number > p.read_number AND m.sender_id = a.id
			), p.joined_number, p.created_at + (now() - p.created_at) * (CAST(p.joined_number
				AS float) / (p.last_number + 1)) + p.k * interval '1 microsecond'
		FROM (
			SELECT id, last_number, created_at, k, base, stride, joined_number, greatest(joined_number, last_number - CASE WHEN random() < 0.6
				THEN 0 ELSE CAST(floor(60 * random() ^ 2) AS bigint) END) AS read_number
			FROM (
				SELECT c.id, c.last_number, c.created_at, c.base, c.stride, k, CASE c.kind WHEN 'channel'
					THEN CAST(floor(random() * (c.last_number + 1)) AS bigint) ELSE 0 END AS joined_number
				FROM seed_conversations c, generate_series(0, c.size - 1) AS k
			) AS joined
		) AS p JOIN seed_agents a ON a.position = (p.base + p.k * p.stride) % CAST(@agents AS bigint)`},

	{"indexes", `DO $$ BEGIN EXECUTE (SELECT string_agg(definition, '; ' ORDER BY id) FROM seed_indexes); END $$`},
}

// uuidAt returns an expression for a UUIDv7 of this time.
func uuidAt(at string) string {
	return `CAST(lpad(to_hex(CAST(extract(epoch FROM ` + at + `) * 1000 AS bigint)), 12, '0')
		|| '7' || substr(CAST(gen_random_uuid() AS text), 16) AS uuid)`
}

// pick returns an expression that chooses one of the words at random for each row.
func pick(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", "''") + "'"
	}
	return fmt.Sprintf(`(ARRAY[%s])[1 + CAST(floor(random() * %d) AS int)]`, strings.Join(quoted, ", "), len(words))
}

var city = pick("Lisbon", "Bremen", "Vienna", "Kraków", "Bergen", "Marseille", "Ghent", "Zürich", "Tallinn", "Porto", "Malmö",
	"Trieste", "Galway", "Basel", "Toulouse", "Split")

// text is an expression for the content of a message: a short reply, a few sentences, or rarely a long report. The
// number of sentences depends on the message's number, because PostgreSQL would run an uncorrelated subquery only once
// for all rows.
var text = `CASE WHEN random() < 0.25 THEN ` +
	pick("Yes, please.", "No, thanks.", "OK 👍", "Understood.", "Done.", "Which one?", "Tomorrow at nine.",
		"I will ask and come back to you.", "¡Hola!", "Too expensive.", "Any news?", "Same as last week.") + `
	ELSE concat_ws(' ',
		CASE WHEN random() < 0.4 THEN ` + pick("Good morning.", "Quick question:", "Thanks, that helps.", "As agreed:", "One more thing.",
	"Update:", "Sorry for the delay.") + ` END,
		(SELECT string_agg(` + sentence + `, ' ') FROM generate_series(1, CASE WHEN number % 100 = 50 THEN 30 ELSE 1 + number % 3 END)),
		CASE WHEN random() < 0.3 THEN ` + pick("Shall I book it?", "Please confirm.", "What do you think?", "I will ask again tomorrow.",
	"That is within the budget.", "Can you do better?") + ` END) END`

var sentence = pick("The night train", "The forecast", "The second offer", "Our order", "The museum", "The invoice", "The container",
	"The reading from the buoy", "The apartment", "The harvest", "The cable car", "The translation") +
	` || ' ' || CASE WHEN random() < 0.2 THEN '(' || upper(left(md5(CAST(random() AS text)), 6)) || ') ' ELSE '' END || ` +
	pick("to", "from", "near", "for", "in", "outside") + ` || ' ' || ` + city + ` || ' ' || ` +
	pick("leaves at", "costs", "was confirmed for", "is late by", "needs", "comes down to", "went up by", "is still short of",
		"holds for another") +
	` || ' ' || CAST(floor(2 + 900 * random() ^ 3) AS int) || ' ' || ` +
	pick("euros", "minutes", "degrees", "tonnes", "kilowatt hours", "seats", "pages", "days", "knots") + ` || '.'`
