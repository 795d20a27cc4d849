package client

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// pollWait is how many seconds a poll of Follow waits at the server, and pollPause the pause after a poll that failed.
const (
	pollWait  = 60
	pollPause = 30 * time.Second
)

// Follow polls for unread messages and notices until ctx ends, and passes each page that has any to a function. A poll waits at the server
// until there is something, a minute at most, and costs one price. The poll after a page confirms it, so a page is passed again if the
// function returns an error, which ends Follow, or if the program dies.
//
// cursor is the one that an earlier Follow returned, or "". It saves the page that was passed last from being passed again.
func Follow(
	ctx context.Context, agent *ClientWithResponses, cursor string, came func(context.Context, *UnreadPage) error,
) (last string, err error) {
	for {
		wait, keep := int64(pollWait), false
		parameters := &ListUnreadMessagesParams{Wait: &wait, MarkRead: &keep}
		if cursor != "" {
			parameters.ReadThrough = &cursor
		}
		polled, err := agent.ListUnreadMessagesWithResponse(ctx, parameters)
		switch {
		case ctx.Err() != nil:
			return cursor, ctx.Err()
		case err != nil:
			return cursor, err
		case polled.JSONDefault != nil && comeAgain(polled.StatusCode(), *polled.JSONDefault) || polled.StatusCode() == http.StatusTooManyRequests:
			if err := sleep(ctx, pollPause); err != nil {
				return cursor, err
			}
			continue
		case polled.JSON200 == nil:
			return cursor, fmt.Errorf("poll for unread messages: status %d: %s", polled.StatusCode(), polled.Body)
		}
		page := polled.JSON200
		if len(page.Messages)+len(page.Notices) > 0 {
			if err := came(ctx, page); err != nil {
				return cursor, err
			}
		}
		if page.Cursor != nil { // a server of an older version has none
			cursor = *page.Cursor
		}
	}
}
