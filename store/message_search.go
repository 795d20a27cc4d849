package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// bounds limits the cost of one message search.
type bounds struct {
	messages int           // checked by the matcher
	work     int64         // bytes checked, times the steps of the pattern; a unit takes a few nanoseconds at worst
	indexed  int           // messages that the index may return; with more, checking one after the other is as good
	lookUp   time.Duration // of the query to the index; after that, too, the messages are checked one after the other
	batch    int64         // messages loaded at a time, limited also by the size of a page
}

// At this limit of work the worst pattern costs a search about as much as a plain scan of 20,000 messages, which takes
// some 40 ms. The contract names the 20,000 messages. A search that ends here says where to continue.
var searchBounds = bounds{messages: 20_000, work: 10_000_000, indexed: 5_000, lookUp: 100 * time.Millisecond, batch: 500}

// quickLookUp is how long a query to the index may take without waiting for its turn. Most take a few milliseconds.
const quickLookUp = 30 * time.Millisecond

// Matches is a page of a message search. SearchedTo is the oldest message that was checked if the search reached its bounds or the next
// match did not fit on the page, and otherwise nil. Literal means that the query is not a valid expression and was searched as literal
// text.
type Matches struct {
	Messages   []SentMessage
	SearchedTo *uuid.UUID
	Literal    bool
}

// SearchMessages returns page (from 1) of the messages that match the query, n on a page, newest first. The query is a
// regular expression or a literal. With before, only messages older than that one are searched. It returns
// ErrPatternTooLarge, ErrNothingToFind, or ErrMessageNotFound if before is not a message of this conversation.
func (r *Reader) SearchMessages(
	ctx context.Context, view *ConversationView, wanted string, n, page int64, before *uuid.UUID,
) (*Matches, error) {
	return r.searchMessages(ctx, view, wanted, n, page, before, searchBounds)
}

func (r *Reader) searchMessages(
	ctx context.Context, view *ConversationView, wanted string, n, page int64, before *uuid.UUID, within bounds,
) (*Matches, error) {
	pattern, err := parsePattern(wanted)
	if err != nil {
		return nil, err
	}
	newest, err := r.newestBefore(ctx, view, before)
	if err != nil {
		return nil, err
	}
	if page-1 > newest/n { // beyond the end; also prevents an overflow of the product below
		return &Matches{Literal: pattern.literal}, nil
	}
	matches := &Matches{Literal: pattern.literal}
	var found []uuid.UUID
	var budget pageBudget // of the found messages
	var last *uuid.UUID
	looked, worked, skip := 0, int64(0), (page-1)*n // skip are the matches on earlier pages
	for message, err := range r.candidates(ctx, view.ID, newest, pattern, within) {
		if err != nil {
			return nil, fmt.Errorf("search messages: %w", err)
		}
		if looked >= within.messages || worked >= within.work {
			matches.SearchedTo = last
			break
		}
		looked++
		matched, work := pattern.matches(message.Content)
		worked += work
		switch {
		case message.Removed, !matched:
		case skip > 0:
			skip--
		case budget.take(message.Content, nil):
			found = append(found, message.ID)
		default:
			matches.SearchedTo = last
		}
		if matches.SearchedTo != nil || len(found) == int(n) {
			break
		}
		last = &message.ID
	}
	matches.Messages, err = r.MessagesByID(ctx, view.ID, found)
	return matches, err
}

// candidates yields the messages to check, newest first: those that the index returns if the pattern has literals that are rare enough, and
// otherwise all. It loads them in batches.
func (r *Reader) candidates(ctx context.Context, conversation uuid.UUID, newest int64, pattern *pattern,
	within bounds) iter.Seq2[*searchedMessage, error] {
	return func(yield func(*searchedMessage, error) bool) {
		numbers, rare, err := r.indexedMessages(ctx, conversation, newest, pattern, within)
		slices.Sort(numbers)
		for err == nil && (rare && len(numbers) > 0 || !rare && newest > 0) {
			var batch []searchedMessage
			if rare {
				some := numbers[max(0, len(numbers)-int(within.batch)):]
				batch, err = query[searchedMessage](ctx, r, namedContents, named{"conversation": conversation, "numbers": some, "most": maxPageContent})
				numbers = numbers[:len(numbers)-len(batch)]
			} else { // numbers have no gaps, so each batch is a range of the key
				batch, err = query[searchedMessage](ctx, r, nextContents,
					named{"conversation": conversation, "newest": newest, "oldest": newest - within.batch, "most": maxPageContent})
				newest -= int64(len(batch))
			}
			for i := range batch {
				if !yield(&batch[i], nil) {
					return
				}
			}
			if len(batch) == 0 { // retention has removed the others meanwhile
				break
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// searchedMessage is the part of a message that the matcher needs.
type searchedMessage struct {
	ID      uuid.UUID
	Content string
	Removed bool
}

// contents loads messages newest first, at most as many as a page holds.
const contents = `
		SELECT id, content, removed FROM (
			SELECT id, number, content, removed_at IS NOT NULL AS removed, row_number() OVER newest AS position,
				sum(octet_length(content)) OVER newest AS size
			FROM messages WHERE conversation_id = @conversation AND $which
			WINDOW newest AS (ORDER BY number DESC ROWS UNBOUNDED PRECEDING)
		) m WHERE size <= @most OR position = 1 ORDER BY number DESC`

var (
	namedContents = strings.Replace(contents, "$which", "number = ANY (CAST(@numbers AS bigint[]))", 1)
	nextContents  = strings.Replace(contents, "$which", "number <= @newest AND number > @oldest", 1)
)

// lookUp looks texts up as they are, and those that are not under NFC once more as the matcher sees them, each in its own index.
const lookUp = `
	(SELECT number FROM messages
	WHERE conversation_id = @conversation AND number <= @newest AND fold(content) LIKE ANY (CAST(@likes AS text[])) LIMIT @most)
	UNION
	(SELECT number FROM messages
	WHERE conversation_id = @conversation AND number <= @newest AND content IS NOT NFC NORMALIZED
		AND fold_nfc(content) LIKE ANY (CAST(@likes AS text[])) LIMIT @most)`

// indexedMessages returns the numbers of all messages that contain the literals of the pattern, in no particular order. It returns false if
// the pattern has no literals, if it does not get its turn, or if too many messages contain them or their trigrams: PostgreSQL compares
// each message that has the trigrams with each LIKE pattern, which takes milliseconds for a long one, and LIMIT does not count the others.
func (r *Reader) indexedMessages(
	ctx context.Context, conversation uuid.UUID, newest int64, pattern *pattern, within bounds,
) ([]int64, bool, error) {
	characters := pattern.characters()
	if characters == "" || r.tx != nil { // the time limit would end a transaction
		return nil, false, nil
	}
	foldings, err := r.foldings(ctx, characters)
	if err != nil {
		return nil, false, err
	}
	likes := pattern.likes(foldings)
	if likes == nil {
		return nil, false, nil
	}
	values := named{"conversation": conversation, "newest": newest, "likes": likes, "most": within.indexed + 1}
	numbers, err := r.numbersWithin(ctx, min(quickLookUp, within.lookUp), values)
	if timedOut(err) { // few at a time
		if r.acquire(ctx, r.lookUps) != nil {
			return nil, false, nil
		}
		defer r.lookUps.Release(1)
		numbers, err = r.numbersWithin(ctx, within.lookUp, values)
	}
	switch {
	case timedOut(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("look up literals: %w", err)
	}
	return numbers, len(numbers) <= within.indexed, nil
}

// numbersWithin runs lookUp for at most limit, in one round trip. The best plan depends on the values; from the sixth execution of a
// prepared statement PostgreSQL may use one plan for all values.
func (r *Reader) numbersWithin(ctx context.Context, limit time.Duration, values named) (numbers []int64, err error) {
	var batch pgx.Batch // is one transaction, so the settings end with it
	batch.Queue("SELECT set_config('statement_timeout', @limit, true), set_config('plan_cache_mode', 'force_custom_plan', true)",
		named{"limit": strconv.FormatInt(limit.Milliseconds(), 10)})
	batch.Queue(lookUp, values).Query(func(rows pgx.Rows) error {
		numbers, err = pgx.CollectRows(rows, scan[int64])
		return err
	})
	return numbers, r.send(ctx, &batch)
}

// timedOut reports whether PostgreSQL ended the statement at statement_timeout.
func timedOut(err error) bool {
	said, ok := errors.AsType[*pgconn.PgError](err)
	return ok && said.Code == "57014"
}

// foldings queries how the database folds each character.
func (r *Reader) foldings(ctx context.Context, characters string) (map[rune]folding, error) {
	all, err := query[folding](ctx, r, `
		SELECT ascii(c) AS of, fold(c) AS text, c ~ '[[:alnum:]]' AS word FROM unnest(string_to_array(@characters, NULL)) AS c`,
		named{"characters": characters})
	foldings := make(map[rune]folding, len(all))
	for _, one := range all {
		foldings[one.Of] = one
	}
	return foldings, wrap("fold characters", err)
}
