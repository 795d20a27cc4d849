package agent

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/parley-chat/parley/client"
)

// maxSkips is how many fetches in a row are skipped because no message was sent to anybody. Notices are not counted by the service,
// so one fetch must happen now and then.
const maxSkips = 40

// Follow fetches unread messages until ctx ends, and passes those that came to a function. If the function returns an error, the
// messages are passed again by the next Follow, at no cost. sent tells of messages that this agent sends, if it is not nil.
func (a *Agent) Follow(ctx context.Context, policy Polling, sent <-chan struct{}, came func(*client.UnreadPage) error) error {
	poller := NewPoller(policy)
	sentBefore, skipped := "", maxSkips
	for {
		timer := time.NewTimer(poller.Pause())
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-sent:
			timer.Stop()
			poller.Active()
			continue
		case <-timer.C:
		}
		messages := a.messagesEverSent(ctx)
		if messages != "" && messages == sentBefore && skipped < maxSkips {
			skipped++
			continue
		}
		inbox, err := a.fetch(ctx, came)
		if temporary(err) {
			continue
		}
		if err != nil {
			return err
		}
		sentBefore, skipped = messages, 0
		poller.Fetched()
		if len(inbox.Messages)+len(inbox.Notices) > 0 {
			poller.Active()
		}
	}
}

// fetch fetches unread messages once.
func (a *Agent) fetch(ctx context.Context, came func(*client.UnreadPage) error) (*client.UnreadPage, error) {
	result, err := a.Call(ctx, pollOperation, nil, CallOptions{})
	if err != nil {
		return nil, err
	}
	inbox := &client.UnreadPage{}
	if err := a.Decode(ctx, result, inbox); err != nil {
		return nil, err
	}
	if len(inbox.Messages)+len(inbox.Notices) > 0 {
		if err := came(inbox); err != nil {
			return nil, err
		}
	}
	return inbox, a.Seen(ctx, result)
}

// temporary reports whether an error of a fetch can be gone at the next one.
func temporary(err error) bool {
	if err == nil {
		return false
	}
	if _, open := errors.AsType[*OpenError](err); open {
		return true
	}
	if _, over := errors.AsType[*LimitError](err); over {
		return true // tomorrow it is not
	}
	refused, ok := errors.AsType[*RefusedError](err)
	return ok && (refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests)
}

// messagesEverSent returns what the service says about the number of messages, or "" if it does not. It is free.
func (a *Agent) messagesEverSent(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Server()+"/health", nil)
	if err != nil {
		return ""
	}
	response, err := a.unpaid.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // it is read
	var health struct {
		Activity struct {
			MessagesSent string `json:"messages_sent"`
		} `json:"activity"`
	}
	if json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&health) != nil {
		return ""
	}
	return health.Activity.MessagesSent
}
