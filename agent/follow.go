package agent

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/parley-chat/parley/client"
)

// Follow fetches unread messages until ctx ends, and passes those that came to a function. Each fetch waits at the server, and confirms the
// page that was passed before. After an error of the function, or if the process dies, the next Follow passes the messages again, free.
// sent tells of messages that this agent sends, if it is not nil.
func (a *Agent) Follow(ctx context.Context, policy Polling, sent <-chan struct{}, came func(*client.UnreadPage) error) error {
	poller := NewPoller(policy)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-sent:
			poller.Active()
			continue
		case <-time.After(poller.Pause()):
		}
		inbox, err := a.fetch(ctx, poller.Wait, came)
		if temporary(err) {
			continue
		}
		if err != nil {
			return err
		}
		poller.Fetched()
		if len(inbox.Messages)+len(inbox.Notices) > 0 {
			poller.Active()
		}
	}
}

// fetch fetches unread messages once.
func (a *Agent) fetch(ctx context.Context, wait time.Duration, came func(*client.UnreadPage) error) (*client.UnreadPage, error) {
	inbox := &client.UnreadPage{}
	return inbox, a.Confirming(ctx, map[string]any{"wait": int(wait.Seconds())}, func(arguments map[string]any) (*client.UnreadPage, error) {
		result, err := a.Call(ctx, pollOperation, arguments, CallOptions{Patience: 2*wait + defaultPatience})
		if open, ok := errors.AsType[*OpenError](err); ok && ctx.Err() != nil { // the next fetch gets the page that this one may have got
			return nil, errors.Join(err, a.ledger.drop(ctx, open.ID))
		}
		if err == nil {
			err = a.Decode(ctx, result, inbox)
		}
		if err == nil && len(inbox.Messages)+len(inbox.Notices) > 0 {
			err = came(inbox)
		}
		if err != nil {
			return nil, err
		}
		return inbox, a.Seen(ctx, result)
	})
}

// Confirming adds to the arguments of a fetch of unread messages that it confirms the page that was passed on last, and that what it
// returns stays unread. If fetch returns a page, that is the one that the next fetch confirms.
func (a *Agent) Confirming(
	ctx context.Context, arguments map[string]any, fetch func(arguments map[string]any) (*client.UnreadPage, error),
) error {
	name := cursorSetting + " " + a.Server()
	cursor, err := loadSetting(ctx, a.ledger.db, name, "")
	if err != nil {
		return err
	}
	if cursor == "" {
		arguments["mark_read"] = false
	} else {
		arguments["read_through"] = cursor
	}
	page, err := fetch(arguments)
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Status == http.StatusBadRequest && cursor != "" {
		return errors.Join(err, a.ledger.exec(ctx, "DELETE FROM settings WHERE name = ?", name)) // a cursor of another account
	}
	if err != nil || page == nil || page.Cursor == nil {
		return err
	}
	return a.ledger.transact(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, name, *page.Cursor) })
}

// temporary reports whether an error of a fetch can be gone at the next one.
func temporary(err error) bool {
	_, open := errors.AsType[*OpenError](err)
	_, over := errors.AsType[*LimitError](err) // tomorrow it is not
	_, unreachable := errors.AsType[*client.UnreachableError](err)
	refused, ok := errors.AsType[*RefusedError](err)
	failed := ok && (refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests)
	return open || over || unreachable || failed
}
