package payment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

const (
	// recoverEvery is how often the worker looks for open payments.
	recoverEvery = time.Second
	// atATime is how many payments the worker settles at the same time. The facilitator waits for a block with each.
	atATime = 64
	// maxAttempts is how many attempts are made before a payment is left to the operator. The pauses grow, so this takes hours.
	maxAttempts = 50
	// cleanUpEvery is how often expired rows are deleted, and cleanUpAtOnce how many in one statement.
	cleanUpEvery  = time.Minute
	cleanUpAtOnce = 500
)

// Recover completes payments that a crash, a lost response or an unavailable facilitator left open. It runs until ctx ends.
// Any number of servers may run it on one database.
func (e *Engine) Recover(ctx context.Context, restore Restore) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { Every(ctx, cleanUpEvery, e.cleanUp) })
	for _, scheme := range e.schemes {
		running.Go(func() { scheme.Work(ctx) })
	}
	places := make(chan struct{}, atATime)
	for tick := time.NewTicker(recoverEvery); ; {
		e.recordUnrecorded(ctx)
		for e.Ready() && ctx.Err() == nil {
			if free := cap(places) - len(places); free == 0 || e.takeOpen(ctx, restore, free, places, &running) < free {
				break
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.wake:
		}
	}
}

// takeOpen leases up to free open payments, makes an attempt at each in its own goroutine, and returns how many there were.
func (e *Engine) takeOpen(ctx context.Context, restore Restore, free int, places chan struct{}, running *sync.WaitGroup) int {
	rows, err := e.Store.TakeOpenPayments(ctx, store.OpenPayments{
		Network: e.Network.ID, Asset: strings.ToLower(e.Network.Asset), Limit: free, MaxAttempts: maxAttempts, Held: e.working(),
	}, Lease)
	if err != nil && ctx.Err() == nil {
		e.failing.Do(func() { e.Log.WarnContext(ctx, "look for open payments", "error", err) })
	}
	for i := range rows {
		places <- struct{}{}
		release := e.held.add(rows[i].ID)
		running.Go(func() {
			defer release()
			Crash("claimed")
			e.retry(context.WithoutCancel(ctx), restore, &rows[i])
			<-places
			if len(rows) == free { // there may be more
				e.wakeUp()
			}
		})
	}
	return len(rows)
}

// working lists the open payments that this server works on, or whose last outcome it has yet to record.
func (e *Engine) working() []uuid.UUID {
	ids := e.held.list()
	for key := range e.unrecorded.Range {
		ids = append(ids, key.(*store.Payment).ID) //nolint:forcetypeassert // there are no others
	}
	return ids
}

// wakeUp makes the worker look now.
func (e *Engine) wakeUp() {
	select {
	case e.wake <- struct{}{}:
	default: // it is already due
	}
}

// retry makes one attempt at a payment that was taken and logs the outcome.
func (e *Engine) retry(ctx context.Context, restore Restore, row *store.Payment) {
	ctx, cancel := context.WithTimeout(ctx, Lease)
	defer cancel()
	err := e.retryOnce(ctx, restore, row)
	attributes := []slog.Attr{
		slog.String("payment_id", row.ID.String()), slog.String("operation", row.Operation), slog.String("payer", row.Payer),
		slog.Int("attempts", row.Attempts), slog.Float64("age_s", row.Now.Sub(row.CreatedAt).Seconds()),
	}
	level := slog.LevelInfo
	if refused, ok := errors.AsType[*Error](err); ok {
		code := string(refused.Code)
		if refused.Refusal != nil {
			code = refused.Refusal.Code
		}
		attributes = append(attributes, slog.String("code", code))
		if refused.Code == CodeUnknown || refused.Code == CodeBusy {
			level = slog.LevelWarn
		}
	}
	if err != nil {
		attributes = append(attributes, slog.String("error", Cause(err)))
	}
	e.Log.LogAttrs(ctx, level, "payment retried", attributes...)
}

// Cause returns the text for the log. An operator needs the cause, not the message for the caller.
func Cause(err error) string {
	if cause := errors.Unwrap(err); cause != nil {
		return cause.Error()
	}
	return err.Error()
}

// retryOnce continues a payment that was taken with the same steps as a new one.
func (e *Engine) retryOnce(ctx context.Context, restore Restore, row *store.Payment) (err error) {
	defer func() {
		if value := recover(); value != nil { // one broken payment must not end the process
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	attempt, err := e.restore(row)
	if err != nil {
		return e.unreadable(ctx, row, err)
	}
	attempt.retried = true
	call, err := restore(ctx, row, attempt)
	if err != nil {
		return e.unreadable(ctx, row, err)
	}
	_, err = e.settle(ctx, call, row, store.Response{})
	return err
}

// unreadable leaves a payment open that this server cannot read, because it is older.
func (e *Engine) unreadable(ctx context.Context, row *store.Payment, err error) error {
	return e.unclear(ctx, row, &UnclearSettlement{store.Unclear{Reason: "the stored call cannot be read", Sent: false}, err})
}

// Every calls do at once and then after every pause, until ctx ends.
func Every(ctx context.Context, pause time.Duration, do func(context.Context)) {
	for tick := time.NewTicker(pause); ; {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// cleanUp deletes stored responses and failed payments that have expired.
func (e *Engine) cleanUp(ctx context.Context) {
	for n := cleanUpAtOnce; n == cleanUpAtOnce && ctx.Err() == nil; {
		var err error
		if n, err = e.Store.CleanUp(ctx, cleanUpAtOnce); err != nil && ctx.Err() == nil {
			e.Log.WarnContext(ctx, "clean the ledger up", "error", err)
		}
	}
}

// unrecordedOutcome is an outcome that could not be recorded because the database was unavailable. This server holds the
// lease of the payment, so no other server would retry it before the lease is over.
type unrecordedOutcome struct {
	what  store.Unclear
	until time.Time // after that another server has the payment
}

// recordUnrecorded tries to record them again.
func (e *Engine) recordUnrecorded(ctx context.Context) {
	for key, value := range e.unrecorded.Range {
		row, outcome := key.(*store.Payment), value.(unrecordedOutcome) //nolint:forcetypeassert // there are no others
		err := e.Store.PaymentUnclear(ctx, row, outcome.what)
		if err == nil || errors.Is(err, store.ErrStalePayment) || time.Now().After(outcome.until) {
			e.unrecorded.Delete(row)
		}
	}
}
