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
)

// Directory search ranks candidates from three sources and returns a page of them, best first. Equal names stand together, the one with the
// most members first, then the oldest. Each source is limited, so that a query reads at most a few ten thousand rows, no matter how many
// match:
//
//   - found: the rows that the trigram index finds, if a word has three letters or digits in a row. If they are fewer than mostFound, they
//     are all matches, and the other two sources are not read.
//   - the names that begin with the query, as it is or without punctuation around its words, in the order of names, so that equal names
//     come first.
//   - the newest rows, checked one by one.
const (
	mostFound   = 5_000
	mostNewest  = 10_000
	mostIndexed = 3 // words that the index looks up
)

// directory is a table that can be searched. Its expressions and conditions have the exact text of those of its
// indexes, so that the planner can use the indexes.
type directory struct {
	table   string
	columns string // of the result
	read    string // the columns that name, text, members and shown use
	name    string
	text    string
	members string
	since   string // when the first of those with the same name was created
	listed  string // the rows in the indexes
	shown   string // the listed rows that the caller may see
}

var agentDirectory = directory{
	table: "agents", columns: "d.id, d.username, d.description, d.is_discoverable, d.created_at",
	read: "id, created_at, username, description", name: "username", text: "fold_nfc(username || ' ' || description)",
	members: "0", since: "created_at",
	listed: "is_discoverable",
	shown:  "NOT EXISTS (SELECT 1 FROM blocks b WHERE b.blocker_id = d.id AND b.blocked_id = @caller)",
}

// conversationDirectory has the kind as a literal in its condition, because a parameter does not match a partial index.
func conversationDirectory(kind string) directory {
	return directory{
		table: "conversations", columns: "d.id, d.name, coalesce(d.description, '') AS description, d.member_count, d.created_at",
		read: "id, created_at, name, description, member_count", name: "fold_nfc(name)",
		text:    "fold_nfc(name || ' ' || coalesce(description, ''))",
		members: "member_count", since: "first_value(created_at) OVER (PARTITION BY name ORDER BY members DESC, created_at, id)",
		listed: "kind = '" + kind + "' AND is_discoverable AND deleted_at IS NULL", shown: "true",
	}
}

// FoundConversation is a group chat or channel in a search result.
type FoundConversation struct {
	ID          uuid.UUID
	Name        string
	Description string
	MemberCount int64
	CreatedAt   time.Time
}

// SearchAgents returns page (from 1) of size discoverable agents that match the query and have not blocked the caller, or ErrNoWord.
func (r *Reader) SearchAgents(ctx context.Context, caller uuid.UUID, query string, size, page int64) ([]Agent, error) {
	return searchDirectory[Agent](ctx, r, agentDirectory, named{"caller": caller}, query, size, page)
}

// SearchConversations returns page (from 1) of size discoverable group chats or channels that match the query, or ErrNoWord.
func (r *Reader) SearchConversations(ctx context.Context, kind, query string, size, page int64) ([]FoundConversation, error) {
	return searchDirectory[FoundConversation](ctx, r, conversationDirectory(kind), named{}, query, size, page)
}

func searchDirectory[T any](ctx context.Context, r *Reader, d directory, values named, wanted string, size, page int64) ([]T, error) {
	if !strings.ContainsFunc(wanted, searchable) {
		return nil, ErrNoWord
	}
	if (page-1)*size >= 3*mostFound+mostNewest { // there are no more candidates
		return nil, nil
	}
	values["size"], values["offset"] = size, (page-1)*size
	rows, err := query[T](ctx, r, d.statement(wanted, values), values)
	return rows, wrap("search "+d.table, err)
}

// wordsOf returns the words of a query, without the punctuation around them.
func wordsOf(wanted string) []string {
	words := strings.Fields(wanted)
	for i, word := range words {
		word = strings.TrimLeftFunc(word, punctuation)
		words[i] = strings.TrimRightFunc(word, func(r rune) bool { return r != '#' && punctuation(r) }) // C#
	}
	return slices.DeleteFunc(words, func(word string) bool { return word == "" })
}

func punctuation(r rune) bool { return unicode.IsPunct(r) && !searchable(r) }

// searchable reports whether a directory search for r makes sense: not for white space and punctuation alone. Usernames contain _,
// descriptions %.
func searchable(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsSymbol(r) || r == '_' || r == '%'
}

// statement returns the search statement, and adds the parts of the query to values.
func (d *directory) statement(wanted string, values named) string {
	words := wordsOf(wanted)
	// A name can be equal to the query as it is, or to its words alone.
	values["query"], values["words"] = strings.TrimSpace(wanted), strings.Join(words, " ")
	begins := []string{"fold_nfc(@query)", "fold_nfc(@words)"}
	if values["query"] == values["words"] {
		begins = begins[:1]
	}
	words = slices.Compact(slices.Sorted(slices.Values(words)))
	all := d.text + ` LIKE ALL (string_to_array(fold_nfc(@patterns), chr(10)))`
	// The index looks up the longest words. Each of them costs one more folding per row, so the others are compared in one condition.
	slices.SortStableFunc(words, func(a, b string) int { return cmp.Compare(longestRun(b, indexed), longestRun(a, indexed)) })
	patterns := make([]string, len(words))
	var conditions []string
	for i, word := range words {
		patterns[i] = "%" + escapeLike(word) + "%"
		if i < mostIndexed && longestRun(word, indexed) >= trigram {
			name := fmt.Sprintf("word%d", i)
			values[name] = patterns[i]
			conditions = append(conditions, d.text+" LIKE fold_nfc(@"+name+")")
		}
	}
	values["patterns"] = strings.Join(patterns, "\n") // words have no white space
	found, broad := "false", "true"
	if len(conditions) > 0 {
		if len(conditions) < len(words) {
			conditions = append(conditions, all)
		}
		found, broad = strings.Join(conditions, " AND "), fmt.Sprintf("(SELECT count(*) = %d FROM found)", mostFound)
	}
	var begun strings.Builder
	for _, begin := range begins {
		begun.WriteString(strings.ReplaceAll(`UNION (
				SELECT $candidate FROM $table d
				WHERE $listed AND $shown AND $name ~>=~ $begin AND $name ~<~ ($begin || chr(1114111)) AND $broad
				ORDER BY $name USING ~<~ LIMIT $mostFound
			) `, "$begin", begin))
	}
	return strings.NewReplacer("$table", d.table, "$columns", d.columns, "$read", d.read, "$name", d.name, "$listed", d.listed,
		"$shown", d.shown, "$found", found, "$broad", broad, "$all", all, "$mostFound", fmt.Sprint(mostFound), "$mostNewest",
		fmt.Sprint(mostNewest), "$since", d.since, "$candidate",
		"id, created_at, "+d.name+` COLLATE "C" AS name, `+d.members+" AS members").Replace(`
		WITH found AS MATERIALIZED (
			SELECT $candidate FROM $table d WHERE $listed AND $shown AND $found LIMIT $mostFound
		), candidates AS (
			SELECT id, created_at, name, members FROM found
			` + begun.String() + `UNION (
				SELECT $candidate
				FROM (SELECT $read FROM $table WHERE $listed ORDER BY created_at DESC, id DESC LIMIT $mostNewest) d WHERE $shown AND $all AND $broad
			)
		), ranked AS (
			SELECT id, created_at, name, members,
				CASE WHEN name = fold_nfc(@query) THEN 0 WHEN name = fold_nfc(@words) THEN 1
					WHEN starts_with(name, fold_nfc(@query)) OR starts_with(name, fold_nfc(@words)) THEN 2 ELSE 3 END AS rank,
				$since AS since
			FROM candidates
		), page AS (
			SELECT id, created_at, name, members, rank, since FROM ranked
			ORDER BY rank, since DESC, name, members DESC, created_at, id LIMIT @size OFFSET @offset
		)
		SELECT $columns FROM page p JOIN $table d ON d.id = p.id
		ORDER BY p.rank, p.since DESC, p.name, p.members DESC, p.created_at, p.id`)
}

// escapeLike escapes a text for a LIKE pattern.
func escapeLike(text string) string {
	return strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(text)
}

// trigram is how many letters and digits in a row a trigram index needs.
const trigram = 3

// indexed reports whether r can be part of a trigram.
func indexed(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// longestRun returns the length of the longest run of such characters.
func longestRun(text string, such func(rune) bool) int {
	longest, run := 0, 0
	for _, r := range text {
		run++
		if !such(r) {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
