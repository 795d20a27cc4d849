package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Through is what a page of unread messages and notices returned to an agent, which confirms it later. It names every range and every
// notice: what is committed after the page was read can be older by its time, or have a lower number, and must not be confirmed with it.
type Through struct {
	Ranges  []ReadRange // at most one for each conversation
	Notices []int64     // their numbers
}

// Empty reports whether there is nothing to confirm.
func (t Through) Empty() bool { return len(t.Ranges) == 0 && len(t.Notices) == 0 }

// Through is what the page returned.
func (u *Unread) Through() Through {
	through := Through{Ranges: u.Ranges()}
	for _, notice := range u.Notices {
		through.Notices = append(through.Notices, notice.Number)
	}
	return through
}

// ReadThrough marks what an earlier page returned as read, and returns what Unread returns after that. What is read already, was deleted,
// or is of a conversation that the agent has left, is ignored: the same confirmation changes nothing when it comes again. Calls for one
// agent run one after the other, and cannot deadlock: see ReadUnread. What another transaction locks for too long stays unread.
func (tx *Tx) ReadThrough(ctx context.Context, agent uuid.UUID, through Through, page UnreadPage) (*Unread, error) {
	var locked []uuid.UUID
	batch := &pgx.Batch{}
	takeTurn(batch, agent)
	queue(batch, &locked, behindRanges+` FOR NO KEY UPDATE OF m SKIP LOCKED`, markValues(agent, through.Ranges...))
	if err := tx.send(ctx, batch); err != nil {
		return nil, wrap("lock what is to be confirmed", err)
	}
	if len(locked) < len(through.Ranges) { // the others are read already, or locked
		behind, err := query[uuid.UUID](ctx, tx, behindRanges, markValues(agent, through.Ranges...))
		if err != nil {
			return nil, wrap("look for what is to be confirmed", err)
		}
		if len(locked) < len(behind) {
			if locked, err = tx.lockMemberships(ctx, agent, behind); err != nil {
				return nil, err
			}
		}
	}
	ranges := slices.DeleteFunc(slices.Clone(through.Ranges), func(of ReadRange) bool { return !slices.Contains(locked, of.Conversation) })
	batch = &pgx.Batch{}
	if len(ranges) > 0 {
		batch.Queue(markRead, markValues(agent, ranges...))
	}
	forgotten := named{"agent": agent, "numbers": through.Notices}
	if len(through.Notices) > 0 {
		batch.Queue(forgetNotices, forgotten)
	}
	var rows []unreadRow
	queue(batch, &rows, listUnread.of(page), unreadValues(agent, page))
	if err := tx.send(ctx, batch); err != nil {
		return nil, wrap("confirm", err)
	}
	unread, err := unreadOf(rows, page)
	if err != nil {
		return nil, err
	}
	err = retry(ctx, time.Second, func() (bool, error) {
		if err := tx.addNotices(ctx, agent, unread); err != nil {
			return false, err
		}
		confirmed := func(n NoticeView) bool { return slices.Contains(through.Notices, n.Number) }
		if !slices.ContainsFunc(unread.Notices, confirmed) {
			return true, nil
		}
		// One that is being replaced was not deleted: without the replacement it would come again.
		unread.Notices = slices.DeleteFunc(unread.Notices, confirmed)
		_, err := exec(ctx, tx, forgetNotices, forgotten)
		return false, wrap("forget notices", err)
	})
	return unread, err
}

// behindRanges finds the conversations of which the agent has not read a range to its end.
const behindRanges = `
	SELECT m.conversation_id FROM unnest(CAST(@conversations AS uuid[]), CAST(@newest AS bigint[])) AS r (id, newest)
	JOIN memberships m ON m.conversation_id = r.id AND m.agent_id = @agent AND m.status = 'member' AND m.read_number < r.newest`
