package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Directory search ranks candidates and shows a page of them. Candidates come from three places, each bounded, so that
// no query costs more than a few ten thousand rows, however many match:
//
//   - found: what the trigram index finds. Fewer than mostFound are all there are, and the other two are not needed.
//   - the names that begin with the query, in the order of names, so that the equal ones come first.
//   - the newest ones, row by row.
//
// Trigrams know only words with three letters or digits in a row; queries without one have the last two alone.
const (
	mostFound   = 5_000
	mostNewest  = 10_000
	mostIndexed = 3 // words that are looked up in the index
)

// directory is a table that can be searched. Its expressions and conditions are, word for word, those of its indexes.
type directory struct {
	table   string
	columns string // of the result
	read    string // what name, text and shown are made of
	name    string
	text    string
	listed  string // the rows that the indexes know
	shown   string // those of them that the caller may see
}

var agentDirectory = directory{
	table: "agents", columns: "d.id, d.username, d.description, d.is_discoverable, d.created_at",
	read: "id, created_at, username, description", name: "username", text: "fold(username || ' ' || description)", listed: "is_discoverable",
	shown: "NOT EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = d.id AND b.blocked_id = @caller)",
}

// conversationDirectory has the literal kind in its condition: parameters do not fit partial indexes.
func conversationDirectory(kind string) directory {
	return directory{
		table: "conversations", columns: "d.id, d.name, coalesce(d.description, '') AS description, d.member_count, d.created_at",
		read: "id, created_at, name, description", name: "fold(name)", text: "fold(name || ' ' || coalesce(description, ''))",
		listed: "kind = '" + kind + "' AND is_discoverable AND deleted_at IS NULL", shown: "true",
	}
}

// FoundConversation is a group chat or channel as search shows it.
type FoundConversation struct {
	ID          uuid.UUID
	Name        string
	Description string
	MemberCount int64
	CreatedAt   time.Time
}

// SearchAgents returns page (from 1) of size discoverable agents that match the query, best first, without those that
// have blocked the caller. ErrNoWord.
func (s *Store) SearchAgents(ctx context.Context, caller uuid.UUID, query string, size, page int64) ([]Agent, error) {
	return searchDirectory[Agent](ctx, s, agentDirectory, pgx.NamedArgs{"caller": caller}, query, size, page)
}

// SearchConversations returns page (from 1) of size discoverable group chats or channels that match the query, best
// first. ErrNoWord.
func (s *Store) SearchConversations(ctx context.Context, kind, query string, size, page int64) ([]FoundConversation, error) {
	return searchDirectory[FoundConversation](ctx, s, conversationDirectory(kind), pgx.NamedArgs{}, query, size, page)
}

func searchDirectory[T any](ctx context.Context, s *Store, d directory, values pgx.NamedArgs, wanted string, size, page int64) ([]T, error) {
	words := slices.Compact(slices.Sorted(strings.FieldsSeq(wanted)))
	if len(words) == 0 {
		return nil, ErrNoWord
	}
	if (page-1)*size >= 2*mostFound+mostNewest { // there are no more candidates
		return nil, nil
	}
	values["query"], values["size"], values["offset"] = strings.TrimSpace(wanted), size, (page-1)*size
	rows, err := query[T](ctx, s, d.statement(words, values), values)
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", d.table, err)
	}
	return rows, nil
}

// statement writes the search, and the words into values.
func (d *directory) statement(words []string, values pgx.NamedArgs) string {
	patterns := make([]string, len(words))
	for i, word := range words {
		patterns[i] = "%" + escapeLike(word) + "%"
	}
	values["patterns"] = strings.Join(patterns, "\n") // words have no white space
	all := d.text + ` LIKE ALL (string_to_array(fold(@patterns), chr(10)))`
	// The index looks up the longest words; each costs a folding per row again, so the others are compared together.
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(longestRun(b), longestRun(a)) })
	var conditions []string
	for i, word := range words[:min(mostIndexed, len(words))] {
		if longestRun(word) < trigram {
			break
		}
		name := fmt.Sprintf("word%d", i)
		values[name] = "%" + escapeLike(word) + "%"
		conditions = append(conditions, d.text+" LIKE fold(@"+name+")")
	}
	found, broad := "false", "true"
	if len(conditions) > 0 {
		if len(conditions) < len(words) {
			conditions = append(conditions, all)
		}
		found, broad = strings.Join(conditions, " AND "), fmt.Sprintf("(SELECT count(*) = %d FROM found)", mostFound)
	}
	rank := `CASE WHEN ` + d.name + ` = fold(@query) THEN 0 WHEN starts_with(` + d.name + `, fold(@query)) THEN 1 ELSE 2 END AS rank`
	return strings.NewReplacer("$table", d.table, "$columns", d.columns, "$read", d.read, "$name", d.name, "$listed", d.listed, "$shown", d.shown,
		"$found", found, "$broad", broad, "$all", all, "$rank", rank, "$mostFound", fmt.Sprint(mostFound), "$mostNewest", fmt.Sprint(mostNewest)).Replace(`
		WITH found AS MATERIALIZED (
			SELECT id, created_at, $rank FROM $table d WHERE $listed AND $shown AND $found LIMIT $mostFound
		), candidates AS (
			SELECT id, created_at, rank FROM found
			UNION (
				SELECT id, created_at, $rank FROM $table d
				WHERE $listed AND $shown AND $name ~>=~ fold(@query) AND $name ~<~ (fold(@query) || chr(1114111)) AND $broad
				ORDER BY $name USING ~<~ LIMIT $mostFound
			) UNION (
				SELECT id, created_at, $rank
				FROM (SELECT $read FROM $table WHERE $listed ORDER BY created_at DESC, id DESC LIMIT $mostNewest) d WHERE $shown AND $all AND $broad
			)
		), page AS (
			SELECT id, created_at, rank FROM candidates ORDER BY rank, created_at DESC, id DESC LIMIT @size OFFSET @offset
		)
		SELECT $columns FROM page p JOIN $table d ON d.id = p.id ORDER BY p.rank, p.created_at DESC, p.id DESC`)
}

// escapeLike makes a text stand for itself in a LIKE pattern.
func escapeLike(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// trigram is how many letters and digits in a row the trigram indexes need.
const trigram = 3

// longestRun is the length of the longest run of letters and digits.
func longestRun(text string) int {
	longest, run := 0, 0
	for _, r := range text {
		run++
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
