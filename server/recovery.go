package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// recoverEvery is how often the worker looks for open payments; what is newly owed wakes it at once.
	recoverEvery = time.Second
	// atATime is how many payments the worker settles at once: a facilitator waits for a block with each.
	atATime = 64
	// maxAttempts is after how many attempts a payment is left to the operator: some hours, since the pauses grow.
	maxAttempts = 50
)

// Recover finishes what a crash, a lost answer or a facilitator that was away has left open, and collects what is owed,
// until ctx ends. Any number of servers may do so on one database.
func (s *Server) Recover(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, atATime)
	var more atomic.Bool // the last look found as much as there were free slots
	for tick := time.NewTicker(recoverEvery); ; {
		s.writeUnclear(ctx)
		if free := cap(slots) - len(slots); free > 0 && s.facilitator.ready() {
			rows, err := s.store.ClaimOpenPayments(ctx, s.config.Network.ID, strings.ToLower(s.config.Network.Asset), free, maxAttempts, lease)
			if err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "look for open payments", "error", err)
			}
			more.Store(len(rows) == free)
			for _, row := range rows {
				crash("claimed")
				slots <- struct{}{}
				running.Go(func() {
					s.takeUp(context.WithoutCancel(ctx), &row)
					<-slots
					if more.Load() {
						s.wakeUp()
					}
				})
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
func (s *Server) takeUp(ctx context.Context, row *store.Payment) {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	was, err := row.State, error(nil)
	func() {
		defer func() {
			if value := recover(); value != nil { // one broken payment must not end the server
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		if row.State == store.PaymentOwed {
			err = s.collect(ctx, row)
		} else {
			was = store.PaymentUnknown
			err = s.redeliver(ctx, row)
		}
	}()
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
func (s *Server) collect(ctx context.Context, row *store.Payment) error {
	paid, err := s.stored(row)
	if err != nil {
		return err
	}
	transaction, err := s.attempt(ctx, row, paid)
	if err == nil {
		if err := s.closeCollected(ctx, row, transaction); err != nil {
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

// closing is a payment that was collected and waits for its turn to be written down.
type closing struct {
	store.Collected
	done chan error
}

// closings are written down together: while one commit is under way the next ones gather.
type closings struct {
	mu      sync.Mutex
	waiting []closing
	busy    bool
}

// closeCollected writes down that an owed payment has settled, together with others. store.ErrPaymentMoved if somebody
// else has taken it up meanwhile.
func (s *Server) closeCollected(ctx context.Context, row *store.Payment, transaction string) error {
	mine := closing{store.Collected{ID: row.ID, Attempts: row.Attempts, Transaction: transaction}, make(chan error, 1)}
	c := &s.closings
	c.mu.Lock()
	c.waiting = append(c.waiting, mine)
	for !c.busy && len(c.waiting) > 0 { // nobody is writing, so that it is this one's turn
		batch := c.waiting
		c.waiting, c.busy = nil, true
		c.mu.Unlock()
		s.writeClosings(ctx, batch)
		c.mu.Lock()
		c.busy = false
	}
	c.mu.Unlock()
	return <-mine.done
}

func (s *Server) writeClosings(ctx context.Context, batch []closing) {
	collected := make([]store.Collected, len(batch))
	for i, one := range batch {
		collected[i] = one.Collected
	}
	closed, err := s.store.PaymentsCollected(ctx, collected)
	for _, one := range batch {
		switch {
		case err != nil:
			one.done <- err
		case slices.Contains(closed, one.ID):
			one.done <- nil
		default:
			one.done <- store.ErrPaymentMoved
		}
	}
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
