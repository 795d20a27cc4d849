package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/lockfile"
)

// resumePatience limits how long a call waits for the outcome of another one that was interrupted.
const resumePatience = 5 * time.Second

// earlier finishes the same call of a process that was interrupted. It returns nil if there is none.
func (a *Agent) earlier(ctx context.Context, of intent) (result *Result, err error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(calls, func(call open) bool { return call.Intent.Request == of.Request }); i >= 0 {
		if result, err = a.finish(ctx, calls[i]); err == nil {
			result.Earlier = true
		}
		return result, err
	}
	return a.ledger.elsewhere(ctx, of)
}

// finish ends a call whose outcome is not known: it sends the payment again. If that was not charged and cannot be any more, it makes
// the call again with the same payment identifier, so the server cannot charge both.
func (a *Agent) finish(ctx context.Context, call open) (*Result, error) {
	of := call.Intent
	ctx = withIntent(ctx, of)
	response, err := a.payer.Resume(ctx, call.Signed)
	if err != nil || response.StatusCode != http.StatusPaymentRequired || a.ledger.isOpen(ctx, of.ID) {
		return a.read(ctx, of, response, err)
	}
	_ = response.Body.Close()
	request, err := http.NewRequestWithContext(ctx, call.Signed.Method, call.Signed.URL, bytes.NewReader(call.Signed.Body))
	if err != nil {
		return nil, err
	}
	request.Header = call.Signed.Header.Clone()
	response, err = a.http.Do(request)
	return a.read(ctx, of, response, err)
}

// Resume finishes calls that were interrupted, and returns how many are still open. Their responses are stored. Calls that
// another process is making are open. A fetch of unread messages, which may wait long, is finished by the same fetch only.
func (a *Agent) Resume(ctx context.Context) (open int, err error) { return a.finishAll(ctx, "") }

// finishAll finishes the open calls of all operations, or those of one at the agreed server, for which it waits if another process makes
// them. It returns how many are still open.
func (a *Agent) finishAll(ctx context.Context, operation string) (open int, err error) {
	calls, err := a.ledger.Open()
	if err != nil {
		return 0, err
	}
	ctx, _ = BeginCommand(ctx) // their costs are not those of the command that finishes them
	for _, call := range calls {
		of := call.Intent.Operation
		if operation == "" && of == pollOperation || operation != "" && (of != operation || !strings.HasPrefix(call.Signed.URL, a.Server()+"/")) {
			continue
		}
		if err := a.finishOne(ctx, call, operation != ""); err != nil {
			return open, err
		}
		if a.ledger.isOpen(ctx, call.Intent.ID) {
			open++
		}
	}
	return open, nil
}

// finishOne finishes a call unless another process is making it. That may fail: then the call stays open.
func (a *Agent) finishOne(ctx context.Context, call open, wait bool) error {
	patience := resumePatience
	if wait {
		patience = defaultPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	path, err := a.ledger.callLock(call.Intent.Request)
	if err != nil {
		return err
	}
	lock, err := lockfile.Try(path)
	if wait && lock == nil && err == nil {
		lock, _ = lockfile.Wait(ctx, path) // in vain, the call stays open
	}
	if err != nil || lock == nil {
		return err
	}
	defer lock.Release()
	if !a.ledger.isOpen(ctx, call.Intent.ID) {
		return nil // another process has finished it
	}
	result, err := a.finish(ctx, call)
	if err != nil {
		return nil //nolint:nilerr // the call stays open
	}
	var arguments map[string]any
	_ = json.Unmarshal(call.Signed.Body, &arguments) // a call without a body has nothing to learn from
	return a.learn(ctx, call.Intent.Operation, arguments, result.Body)
}

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
		return outcomeOpen(errors.New("another process is making this call and has not ended"))
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) { // the command was ended, or the file cannot be made
		return err
	}
	f := failf(ExitError, "timeout", "", "another process is making the same call and has not ended; nothing was paid for this one")
	f.Retryable = true
	return f
}
