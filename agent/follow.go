package agent

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
)

// Polling is when to fetch unread messages. Each fetch costs the same, however long it waits at the server. After a message, whoever wrote
// it, the next fetch follows at once.
type Polling struct {
	// Wait is how long a fetch waits at the server until there is a message, in whole seconds, at most 60.
	Wait time.Duration
	// First is the pause after a fetch that brought nothing. Each further pause without a message is twice as long, at most Longest.
	First, Longest time.Duration
}

// DefaultPolling costs about 0.30 USD a day: a quiet inbox is fetched every six minutes.
var DefaultPolling = Polling{Wait: time.Minute, First: 30 * time.Second, Longest: 5 * time.Minute}

// Follow fetches unread messages until ctx ends, and passes those that came to a function. Each fetch waits at the server, and confirms the
// page that was passed before. After an error of the function, or if the process dies, the next Follow passes the messages again, free.
func (a *Agent) Follow(ctx context.Context, policy Polling, came func(*Page) error) error {
	var pause time.Duration
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		page, err := a.Fetch(ctx, map[string]any{"wait": int(policy.Wait.Seconds())}, false, 2*policy.Wait+defaultPatience)
		longer := min(max(2*pause, policy.First), policy.Longest)
		f, failed := errors.AsType[*Failure](err)
		passes := failed && (f.Retryable || f.Code == codeLimit) || isA[*client.UnreachableError](err) // the daily limit is tomorrow
		if passes && ctx.Err() == nil {
			if warn := commandOf(ctx).Warn; warn != nil {
				warn(err)
			}
			pause = longer
			continue
		}
		if err == nil && !page.Empty() {
			longer = 0
			err = came(page)
		}
		if err != nil {
			page.Release()
			return err
		}
		pause = longer
		if err := a.Seen(ctx, page.Result); err != nil {
			return err
		}
	}
}

// Page is a page of unread messages. Until [Agent.Seen] or Release no other process hands it out.
type Page struct {
	client.UnreadPage

	Result *Result
}

func (p *Page) Empty() bool { return len(p.Messages)+len(p.Notices) == 0 }

func (p *Page) Release() {
	if p != nil && p.Result != nil {
		p.Result.release()
	}
}

// Fetch fetches unread messages. It confirms the page that was seen last ([Agent.Seen]), and what it returns stays unread. With keep the
// page is not confirmed either when it is seen. Of two fetches at once only one returns a page: the other one fetches the next.
func (a *Agent) Fetch(ctx context.Context, arguments map[string]any, keep bool, patience time.Duration) (*Page, error) {
	name := a.cursorName()
	for {
		cursor, err := loadSetting(ctx, a.ledger.db, name, "")
		if err != nil {
			return nil, err
		}
		delete(arguments, "mark_read")
		delete(arguments, "read_through")
		if cursor == "" {
			arguments["mark_read"] = false
		} else {
			arguments["read_through"] = cursor
		}
		result, err := a.Call(ctx, pollOperation, arguments, CallOptions{Patience: patience})
		if f, ok := errors.AsType[*Failure](err); ok && f.Status == http.StatusBadRequest && cursor != "" {
			err = errors.Join(err, a.ledger.exec(ctx, "DELETE FROM settings WHERE name = ?", name)) // a cursor of another account
		}
		page := &Page{Result: result}
		if err == nil {
			err = a.Decode(ctx, result, &page.UnreadPage)
		}
		if err != nil {
			return nil, err
		}
		if keep || page.Empty() || page.Cursor == nil {
			if page.Cursor != nil && !keep {
				result.cursor = *page.Cursor
			}
			return page, nil
		}
		lock, err := lockfile.Wait(ctx, filepath.Join(filepath.Dir(a.ledger.path), "inbox.lock"))
		if err != nil {
			return nil, fmt.Errorf("another inbox is handing out messages: %w", err)
		}
		now, err := loadSetting(ctx, a.ledger.db, name, "")
		if err == nil && now == cursor {
			result.cursor, result.lock = *page.Cursor, lock
			return page, nil
		}
		lock.Release()
		if err != nil {
			return nil, err
		}
		// Another process has handed these messages out since.
		if err := a.Seen(ctx, result); err != nil {
			return nil, err
		}
	}
}

func (a *Agent) cursorName() string { return cursorSetting + " " + a.Server() }

// Seen notes that a result reached the caller. The same call made again is a new one, and the next fetch of unread messages confirms the
// page that this one brought.
func (a *Agent) Seen(ctx context.Context, result *Result) error {
	ctx = context.WithoutCancel(ctx)
	defer result.release()
	name := a.cursorName() // read before the transaction, because reading it is one
	return a.ledger.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE responses SET seen = 1 WHERE call = ?", result.id)
		if err == nil && result.cursor != "" {
			err = saveSetting(ctx, tx, name, result.cursor)
		}
		return err
	})
}

// release lets other processes hand out messages.
func (r *Result) release() {
	if r.lock != nil {
		r.lock.Release()
		r.lock = nil
	}
}
