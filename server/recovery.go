package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// recoverEvery is how often the worker looks for open payments.
	recoverEvery = time.Second
	// atATime is how many payments the worker settles at once: a facilitator waits for a block with each.
	atATime = 64
	// mostClaimed is how many payments wait for that in this server; more wait in the database.
	mostClaimed = 4 * atATime
	// maxAttempts is after how many attempts a payment is left to the operator: some hours, since the pauses grow.
	maxAttempts = 50
	// keepAnswers is how long a long answer is kept after the end of its payment, as the contract says.
	keepAnswers = time.Hour
	// eraseEvery is how often the worker looks for answers that are kept no longer, and eraseAtOnce how many it erases in
	// one transaction.
	eraseEvery  = time.Minute
	eraseAtOnce = 500
)

// claimed is an open payment that is leased to this server. paid is what came with the call; nil if that was long ago.
type claimed struct {
	row  *store.Payment
	paid *payment
}

// claims are the payments that the worker of this server takes up next.
type claims struct {
	queue    chan claimed
	reserved atomic.Int64 // places in the queue that are taken, or spoken for
	open     atomic.Bool  // the worker runs
}

// reserve takes n places in the queue, if there are so many, and a worker.
func (c *claims) reserve(n int64) bool {
	if !c.open.Load() {
		return false
	}
	if c.reserved.Add(n) > int64(cap(c.queue)) {
		c.reserved.Add(-n)
		return false
	}
	return true
}

// Recover finishes what a crash, a lost answer or a facilitator that was away has left open, and collects what is owed,
// until ctx ends. Any number of servers may do so on one database.
func (s *Server) Recover(ctx context.Context) {
	s.claims.open.Store(true)
	defer s.claims.open.Store(false)
	var running sync.WaitGroup
	defer running.Wait()
	var more atomic.Bool // the last look found as much as it asked for
	for range atATime {
		running.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case next := <-s.claims.queue:
					s.claims.reserved.Add(-1)
					crash("claimed")
					s.takeUp(context.WithoutCancel(ctx), next)
					if more.Load() && len(s.claims.queue) == 0 {
						s.wakeUp()
					}
				}
			}
		})
	}
	running.Go(func() { s.eraseAnswers(ctx) })
	for tick := time.NewTicker(recoverEvery); ; {
		s.writeUnclear(ctx)
		if s.facilitator.ready() && s.claims.reserve(atATime) {
			rows, err := s.store.ClaimOpenPayments(ctx, s.config.Network.ID, strings.ToLower(s.config.Network.Asset), atATime, maxAttempts, lease)
			if err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "look for open payments", "error", err)
			}
			s.claims.reserved.Add(int64(len(rows)) - atATime)
			more.Store(len(rows) == atATime)
			for i := range rows {
				s.claims.queue <- claimed{&rows[i], nil}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.wake:
		}
	}
}

// eraseAnswers keeps the ledger's answers from growing without end, until ctx ends.
func (s *Server) eraseAnswers(ctx context.Context) {
	for tick := time.NewTicker(eraseEvery); ; {
		for n := eraseAtOnce; n == eraseAtOnce && ctx.Err() == nil; {
			var err error
			if n, err = s.store.EraseAnswers(ctx, time.Now().Add(-keepAnswers), eraseAtOnce); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "erase answers", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// wakeUp makes the worker look at once.
func (s *Server) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default: // it will
	}
}

// unclearPayment is a payment whose outcome is not known, and what is.
type unclearPayment struct {
	row  *store.Payment
	what store.Unclear
}

// unclearPayments are those that could not be written down, because the database was away. They are this server's until
// their leases run out, so that nobody else would take them up before.
type unclearPayments struct {
	mu  sync.Mutex
	all []unclearPayment
}

func (u *unclearPayments) add(payment unclearPayment) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.all = append(u.all, payment)
}

func (u *unclearPayments) take() []unclearPayment {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := u.all
	u.all = nil
	return all
}

// writeUnclear writes down what could not be written when it happened.
func (s *Server) writeUnclear(ctx context.Context) {
	for _, payment := range s.unwritten.take() {
		err := s.store.PaymentUnclear(ctx, payment.row, payment.what)
		if err != nil && !errors.Is(err, store.ErrPaymentMoved) && time.Now().Before(payment.row.LeaseUntil) {
			s.unwritten.add(payment)
		}
	}
}

// takeUp makes one attempt at a payment that was claimed, and logs what came of it.
func (s *Server) takeUp(ctx context.Context, next claimed) {
	row := next.row
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	was, err := row.State, error(nil)
	func() {
		defer func() {
			if value := recover(); value != nil { // one broken payment must not end the server
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		switch {
		case time.Until(row.LeaseUntil) < settleTimeout: // it has waited for too long: an attempt could outlast the lease
			err = s.outcomeUnknown(ctx, row, &unclearSettlement{store.Unclear{Reason: "waits for the facilitator", Sent: false}, nil})
		case row.State == store.PaymentOwed:
			err = s.collect(ctx, next)
		default:
			was = store.PaymentUnknown
			err = s.redeliver(ctx, row)
		}
	}()
	if err == nil && was == store.PaymentOwed && row.Attempts == 1 {
		return // as it should be: the call that owes it has its own line
	}
	attributes := []slog.Attr{
		slog.String("payment_id", row.ID.String()), slog.String("operation", row.Operation), slog.String("payer", row.Payer),
		slog.String("was", was), slog.Int("attempts", row.Attempts), slog.Float64("age_s", time.Since(row.CreatedAt).Seconds()),
	}
	level := slog.LevelInfo
	if p, ok := errors.AsType[*problem](err); ok {
		attributes = append(attributes, slog.String("code", string(p.code)))
		if p.status >= http.StatusInternalServerError {
			level = slog.LevelWarn
		}
	}
	if err != nil {
		attributes = append(attributes, slog.String("error", causeOf(err)))
	}
	s.log.LogAttrs(ctx, level, "payment recovered", attributes...)
}

// causeOf is what a log may say of an error: the caller's sentence says nothing to an operator.
func causeOf(err error) string {
	if cause := errors.Unwrap(err); cause != nil {
		return cause.Error()
	}
	return err.Error()
}

// redeliver runs the stored request through the same handler and gate as one that has just come in.
func (s *Server) redeliver(ctx context.Context, row *store.Payment) error {
	paid, err := s.stored(row)
	if err != nil {
		return s.outcomeUnknown(ctx, row, &unclearSettlement{store.Unclear{Reason: "cannot be read", Sent: false}, err})
	}
	paid.recovered = row
	ctx = context.WithValue(ctx, paymentKey, paid)
	if row.AgentID != nil {
		caller, err := s.store.AgentByID(ctx, *row.AgentID)
		if err != nil {
			return s.outcomeUnknown(ctx, row, &unclearSettlement{store.Unclear{Reason: "the caller cannot be read", Sent: false}, err})
		}
		// As it was: rotateKey may replace only the key that the caller came with.
		caller.KeyHash = row.KeyHash
		ctx = context.WithValue(ctx, callerKey, caller)
	}
	route := paid.operation.route
	target := route.Path
	var body []byte
	if route.Operation.RequestBody != nil {
		body = paid.request
	} else {
		target += "?" + string(paid.request)
	}
	request, err := http.NewRequestWithContext(ctx, route.Method, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	c := s.echo.NewContext(request, discard{})
	s.echo.Router().Find(route.Method, route.Path, c)
	return c.Handler()(c)
}

// collect settles a payment whose effect is there already.
func (s *Server) collect(ctx context.Context, next claimed) (err error) {
	row, paid := next.row, next.paid
	if paid == nil {
		if paid, err = s.stored(row); err != nil {
			return err
		}
	}
	transaction, err := s.attempt(ctx, row, paid)
	if err == nil {
		if err := s.store.PaymentCollected(row, transaction); err != nil {
			return err
		}
		s.metrics.payment(row, outcomeCollected)
		return nil
	}
	no, refused := errors.AsType[*refusedSettlement](err)
	if !refused {
		return s.outcomeUnknown(ctx, row, err)
	}
	if failed := s.store.PaymentDefaulted(ctx, row, no.reason); failed != nil {
		return failed
	}
	s.metrics.payment(row, outcomeDefaulted)
	return err
}

// stored is the payment of a row of the ledger, as it was when it came.
func (s *Server) stored(row *store.Payment) (*payment, error) {
	operation := s.byID[row.Operation]
	if operation == nil {
		return nil, fmt.Errorf("the contract has no operation %s any more", row.Operation)
	}
	var payload *x402.PaymentPayload
	var err error
	if row.X402Version == x402.VersionV1 {
		payload, err = x402.ParsePaymentPayloadV1(row.Payload, s.config.Network)
	} else {
		payload, err = x402.ParsePaymentPayload(row.Payload)
	}
	if err != nil {
		return nil, err
	}
	s.completeV1(payload, operation)
	paid := &payment{
		id: row.ID, operation: operation, payload: payload, request: row.Request, caller: row.AgentID,
		offer:   s.config.Network.Requirements(uint64(row.Amount), row.PayTo, s.config.maxTimeoutSeconds()), //nolint:gosec // positive
		checked: x402.Checked{Payer: row.Payer, Nonce: row.Nonce, ValidBefore: row.ValidBefore},
	}
	copy(paid.fingerprint[:], row.Fingerprint)
	if row.PaymentIdentifier != nil {
		paid.identifier, _ = identifierOf(payload)
	}
	return paid, nil
}

// discard is a response that nobody reads.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}
