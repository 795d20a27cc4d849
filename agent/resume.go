package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/parley-chat/parley/client"
)

// resumePatience limits how long a call waits for the outcomes of others that were interrupted.
const resumePatience = 5 * time.Second

// earlier finishes the same call of a process that was interrupted. It returns nil if there is none.
func (a *Agent) earlier(ctx context.Context, of intent) (*Result, error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return nil, err
	}
	for _, call := range calls {
		if call.Intent.Request == of.Request {
			return a.finish(ctx, call)
		}
	}
	return a.ledger.spool.unseen(ctx, of.Request)
}

// finish ends a call whose outcome is not known: it sends the payment again. If that was not charged and cannot be any more, it makes
// the call again with the same payment identifier, so the server cannot charge both.
func (a *Agent) finish(ctx context.Context, call open) (*Result, error) {
	if a.ledger.frozen() {
		return nil, ErrFrozen
	}
	of := call.Intent
	ctx = withIntent(ctx, of)
	response, err := a.payer.Resume(ctx, call.Signed)
	if err == nil && response.StatusCode == http.StatusPaymentRequired {
		_ = response.Body.Close()
		request, err := http.NewRequestWithContext(ctx, call.Signed.Method, call.Signed.URL, bytes.NewReader(call.Signed.Body))
		if err != nil {
			return nil, err
		}
		request.Header = call.Signed.Header.Clone()
		response, err = a.http.Do(request)
		return a.read(ctx, of, response, err)
	}
	return a.read(ctx, of, response, err)
}

// Resume finishes calls that were interrupted, and returns how many are still open. Their responses are in the spool. Calls that
// another process is making are open.
func (a *Agent) Resume(ctx context.Context) (open int, err error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return 0, err
	}
	for _, call := range calls {
		path, err := a.ledger.callPath(call.Intent.Request)
		if err != nil {
			return open, err
		}
		err = lockedNow(path, func() error {
			if !a.ledger.isOpen(call.Intent.ID) {
				return nil // another process has finished it
			}
			ctx, cancel := context.WithTimeout(ctx, resumePatience)
			defer cancel()
			_, err := a.finish(ctx, call)
			return err
		})
		if _, unknown := errors.AsType[*OpenError](err); unknown || a.ledger.isOpen(call.Intent.ID) {
			open++
		}
	}
	return open, nil
}

// keyPatience limits how long a call waits for another process that replaces the API key, and keyPause is between two looks at it.
const (
	keyPatience = 5 * time.Second
	keyPause    = 50 * time.Millisecond
)

// keyReplaced reports whether a call was refused because its API key had been replaced by another process, whose new key is stored. If that
// process was interrupted, it finishes its call.
func (a *Agent) keyReplaced(ctx context.Context, err error, used string) bool {
	refused, ok := errors.AsType[*RefusedError](err)
	if !ok || refused.Code != client.ErrorCodeInvalidAPIKey {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	for ctx.Err() == nil {
		open, err := a.Resume(ctx)
		if err != nil {
			return false
		}
		if key, err := a.apiKey(); err != nil || key != used || open == 0 {
			return err == nil && key != used
		}
		time.Sleep(keyPause)
	}
	return false
}

// isOpen reports whether the outcome of a call is not known.
func (l *Ledger) isOpen(id string) bool {
	_, err := os.Stat(l.openPath(id))
	return err == nil
}

// alone runs a function while no other process makes the same call.
func (l *Ledger) alone(ctx context.Context, request string, run func() error) error {
	path, err := l.callPath(request)
	if err != nil {
		return err
	}
	return locked(ctx, path, run)
}

// callPath returns the path that a process locks while it makes a call.
func (l *Ledger) callPath(request string) (string, error) {
	folder := filepath.Join(l.folder, "calls")
	return filepath.Join(folder, request), os.MkdirAll(folder, 0o700)
}

// charged returns what a call was charged at its last outcome, as far as the server says, in atomic units.
func (l *Ledger) charged(id string) (amount uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.ID == id && (e.Step == stepAnswered || e.Step == stepRefused) {
			amount = e.Charged
		}
	}
	return amount
}

// wasCharged reports whether the server ever charged a call.
func (l *Ledger) wasCharged(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.entries, func(e entry) bool { return e.ID == id && e.Charged > 0 })
}

// refusedCall returns the payment identifier of the same call that was refused last, or "". Should the server have charged it after all,
// the identifier keeps it from charging the call again.
func (l *Ledger) refusedCall(ctx context.Context, request string) (id string, err error) {
	err = l.locked(ctx, func(func(entry) error) error {
		for _, e := range l.entries {
			switch {
			case e.Step == stepRefused && e.Request == request:
				id = e.ID
			case (e.Step == stepAnswered || e.Step == stepRefused) && e.ID == id: // nothing may be paid with it any more
				id = ""
			}
		}
		return nil
	})
	return id, err
}

// withoutURL removes the URL from an error of net/http: it has the query of the call.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// given returns the approval of a call that a person has given, or nil.
func (l *Ledger) given(ctx context.Context, of intent) (found *Approval, err error) {
	err = l.locked(ctx, func(func(entry) error) error {
		if found, err = l.findApproval(of.Request); found != nil && found.GivenAt.IsZero() {
			found = nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	return found, nil
}
