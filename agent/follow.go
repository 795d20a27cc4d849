package agent

import (
	"context"
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
	call := func(arguments map[string]any) (*Result, error) {
		return a.Call(ctx, pollOperation, arguments, CallOptions{Patience: 2*wait + defaultPatience})
	}
	result, inbox, err := a.Fetch(ctx, map[string]any{"wait": int(wait.Seconds())}, false, call)
	if open, ok := errors.AsType[*OpenError](err); ok && ctx.Err() != nil { // the next fetch gets the page that this one may have got
		err = errors.Join(err, a.ledger.drop(ctx, open.ID))
	}
	if err == nil && len(inbox.Messages)+len(inbox.Notices) > 0 {
		err = came(inbox)
	}
	if err != nil {
		return nil, err
	}
	return inbox, a.Seen(ctx, result)
}

// Fetch fetches unread messages with a call that it adds arguments to: they confirm the page that was seen last ([Agent.Seen]), and what
// the call returns stays unread. With keep the page is not confirmed either when it is seen.
func (a *Agent) Fetch(
	ctx context.Context, arguments map[string]any, keep bool, call func(arguments map[string]any) (*Result, error),
) (result *Result, page *client.UnreadPage, err error) {
	name := a.cursorName()
	cursor, err := loadSetting(ctx, a.ledger.db, name, "")
	if err != nil {
		return nil, nil, err
	}
	if cursor == "" {
		arguments["mark_read"] = false
	} else {
		arguments["read_through"] = cursor
	}
	result, err = call(arguments)
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Status == http.StatusBadRequest && cursor != "" {
		err = errors.Join(err, a.ledger.exec(ctx, "DELETE FROM settings WHERE name = ?", name)) // a cursor of another account
	}
	page = &client.UnreadPage{}
	if err == nil {
		err = a.Decode(ctx, result, page)
	}
	if err == nil && page.Cursor != nil && !keep {
		result.cursor = *page.Cursor
	}
	return result, page, err
}

// cursorName names the setting with the last page of unread messages that was seen.
func (a *Agent) cursorName() string { return cursorSetting + " " + a.Server() }

// temporary reports whether an error of a fetch can be gone at the next one.
func temporary(err error) bool {
	_, open := errors.AsType[*OpenError](err)
	_, over := errors.AsType[*LimitError](err) // tomorrow it is not
	_, unreachable := errors.AsType[*client.UnreachableError](err)
	refused, ok := errors.AsType[*RefusedError](err)
	failed := ok && (refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests)
	return open || over || unreachable || failed
}
