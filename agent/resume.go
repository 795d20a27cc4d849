package agent

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
)

// resumePatience limits how long a call waits for the outcomes of others that were interrupted.
const resumePatience = 5 * time.Second

// earlier finishes the same call of a process that was interrupted. It returns nil if there is none.
func (a *Agent) earlier(ctx context.Context, of intent) (*Result, error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(calls, func(call open) bool { return call.Intent.Request == of.Request }); i >= 0 {
		return a.finish(ctx, calls[i])
	}
	return a.ledger.elsewhere(ctx, of.Request, of.Since)
}

// finish ends a call whose outcome is not known: it sends the payment again. If that was not charged and cannot be any more, it makes
// the call again with the same payment identifier, so the server cannot charge both.
func (a *Agent) finish(ctx context.Context, call open) (*Result, error) {
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

// Resume finishes calls that were interrupted, and returns how many are still open. Their responses are stored. Calls that
// another process is making are open.
func (a *Agent) Resume(ctx context.Context) (open int, err error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return 0, err
	}
	requested := commandOf(ctx).Requested
	ctx, others := BeginCommand(ctx) // [Agent.Finished] tells what they cost
	others.Requested = requested
	for _, call := range calls {
		if err := a.resumeOne(ctx, call); err != nil {
			return open, err
		}
		if a.ledger.isOpen(ctx, call.Intent.ID) {
			open++
		}
	}
	return open, nil
}

// resumeOne finishes a call unless another process is making it. That may fail: then the call stays open.
func (a *Agent) resumeOne(ctx context.Context, call open) error {
	path, err := a.ledger.callLock(call.Intent.Request)
	if err != nil {
		return err
	}
	lock, err := lockfile.Try(path)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Release()
	if !a.ledger.isOpen(ctx, call.Intent.ID) {
		return nil // another process has finished it
	}
	ctx, cancel := context.WithTimeout(ctx, resumePatience)
	defer cancel()
	call.Intent.Resumed = true
	result, err := a.finish(ctx, call)
	if err != nil {
		return nil //nolint:nilerr // the call stays open
	}
	var arguments map[string]any
	_ = json.Unmarshal(call.Signed.Body, &arguments) // a call without a body has nothing to learn from
	return a.learn(ctx, call.Intent.Operation, arguments, result.Body)
}

// Finished is a call that was charged after its command had ended.
type Finished struct {
	Operation, Peer string
	Since           time.Time // when it was begun
	Charged         uint64    // atomic units
}

// String says what the call cost.
func (f Finished) String() string {
	text := f.Operation
	if f.Peer != "" {
		text += " to " + VisibleName(f.Peer)
	}
	return fmt.Sprintf("%s, begun at %s, has finished: paid %s USD", text, f.Since.Format(time.DateTime), USD(f.Charged))
}

// Finished returns the calls that were charged after their commands had ended, each once, and counts them as paid by the command of ctx:
// its output is the first that can tell.
func (a *Agent) Finished(ctx context.Context) ([]Finished, error) {
	all, err := collect(context.WithoutCancel(ctx), a.ledger.db, func(row *sql.Rows, f *Finished) error {
		var at int64
		err := row.Scan(&f.Operation, &f.Peer, &at, &f.Charged)
		f.Since = fromMicros(at)
		return err
	}, "UPDATE calls SET untold = 0 WHERE untold RETURNING operation, peer, at, charged")
	for _, call := range all {
		commandOf(ctx).charged.Add(call.Charged)
	}
	return all, err
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

// callLock returns the path of a file that is locked while a call is made.
func (l *Ledger) callLock(request string) (string, error) {
	folder := filepath.Join(filepath.Dir(l.path), "calls")
	return filepath.Join(folder, request), os.MkdirAll(folder, 0o700)
}

// alone runs a function while no other process makes the same call.
func (l *Ledger) alone(ctx context.Context, request string, run func() error) error {
	path, err := l.callLock(request)
	if err != nil {
		return err
	}
	lock, err := lockfile.Wait(ctx, path)
	if err != nil {
		return l.busy(ctx, request, err)
	}
	defer lock.Release()
	return run()
}

// busy returns the error of a call that waited for the same one in vain. Only a payment that the other process has signed may be sent.
func (l *Ledger) busy(ctx context.Context, request string, err error) error {
	const signed = "SELECT 1 FROM calls WHERE request = ? AND signed IS NOT NULL"
	if open, failed := value[bool](context.WithoutCancel(ctx), l.db, signed, request); open && failed == nil {
		return &OpenError{cause: fmt.Errorf("another process is making this call and has not ended: %w", err)}
	}
	return fmt.Errorf("nothing was paid for this call: %w", err)
}

// withoutURL removes the URL from an error of net/http: it has the query of the call.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
