package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/parley-chat/parley/x402"
)

const (
	longestWait = 60              // seconds, the contract's maximum
	followPause = 5 * time.Second // after a refusal without Retry-After, and between two calls that return nothing
)

// Follow passes unread messages and notices to a function as they come. Each call waits at the server for up to a minute, and costs one
// price, also if nothing came. A page is confirmed with the call after the function has returned: a program that dies before gets it again,
// and so may see a message twice. cursor is that of the last page that the program has processed, or "". Follow
// returns the error of the function, of a call, or of ctx. Nothing is lost if it is called again.
//
// Other calls use the payment channel meanwhile. An account has one waiting call at a server; a newer one ends it.
func (c *ClientWithResponses) Follow(ctx context.Context, cursor Cursor, came func(context.Context, *UnreadPage) error) error {
	next := ListUnreadMessagesParams{MarkRead: new(false), Wait: new(Wait(longestWait))}
	if cursor != "" {
		next.ReadThrough = &cursor
	}
	for {
		began := time.Now()
		response, err := c.ListUnreadMessagesWithResponse(ctx, &next)
		var pause time.Duration
		switch {
		case err != nil:
			return err
		case response.JSON200 != nil:
			if page := response.JSON200; len(page.Messages)+len(page.Notices) > 0 {
				if err := came(ctx, page); err != nil {
					return err
				}
			} else { // a server that does not wait is not paid in a loop
				pause = followPause - time.Since(began)
			}
			next.ReadThrough = response.JSON200.Cursor
		case !again(response.StatusCode()):
			return fmt.Errorf("get unread messages: %s %.500s", response.Status(), response.Body)
		default:
			pause = max(x402.RetryAfter(response.HTTPResponse.Header.Get("Retry-After"), followPause), time.Second)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// again reports whether a refused call may succeed later.
func again(status int) bool {
	return status == http.StatusConflict || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}
