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
	"time"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

const (
	// recoverEvery is how often the worker looks for open payments.
	recoverEvery = time.Second
	// atATime is how many payments the worker settles at once: a facilitator waits for a block with each.
	atATime = 64
	// maxAttempts is after how many attempts a payment is left to the operator: some hours, since the pauses grow.
	maxAttempts = 50
	// cleanUpEvery is how often the worker looks for what is kept no longer, and cleanUpAtOnce how many rows it takes in one
	// statement.
	cleanUpEvery  = time.Minute
	cleanUpAtOnce = 500
)

// Recover finishes what a crash, a lost answer or an unavailable facilitator has left open, until ctx ends. Any number of
// servers may do so on one database.
func (s *Server) Recover(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.cleanUp(ctx) })
	places := make(chan struct{}, atATime)
	for tick := time.NewTicker(recoverEvery); ; {
		s.writeUnclear(ctx)
		for s.facilitator.ready() && ctx.Err() == nil {
			if free := cap(places) - len(places); free == 0 || s.claim(ctx, free, places, &running) < free {
				break
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

// claim takes up to free open payments, makes an attempt at each in a goroutine of its own, and returns how many there were.
func (s *Server) claim(ctx context.Context, free int, places chan struct{}, running *sync.WaitGroup) int {
	rows, err := s.store.ClaimOpenPayments(ctx, s.config.Network.ID, strings.ToLower(s.config.Network.Asset), free, maxAttempts, lease)
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "look for open payments", "error", err)
	}
	for i := range rows {
		places <- struct{}{}
		running.Go(func() {
			crash("claimed")
			s.takeUp(context.WithoutCancel(ctx), &rows[i])
			<-places
			if len(rows) == free { // there may be more
				s.wakeUp()
			}
		})
	}
	return len(rows)
}

// cleanUp keeps the ledger from growing with what nobody may ask for any more, until ctx ends.
func (s *Server) cleanUp(ctx context.Context) {
	for tick := time.NewTicker(cleanUpEvery); ; {
		for n := cleanUpAtOnce; n == cleanUpAtOnce && ctx.Err() == nil; {
			var err error
			if n, err = s.store.CleanUp(ctx, cleanUpAtOnce); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "clean the ledger up", "error", err)
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
	row   *store.Payment
	what  store.Unclear
	until time.Time // somebody else has taken it up by then
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
		if err != nil && !errors.Is(err, store.ErrPaymentMoved) && time.Now().Before(payment.until) {
			s.unwritten.add(payment)
		}
	}
}

// takeUp makes one attempt at a payment that was claimed, and logs what came of it.
func (s *Server) takeUp(ctx context.Context, row *store.Payment) {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	var err error
	func() {
		defer func() {
			if value := recover(); value != nil { // one broken payment must not end the server
				err = fmt.Errorf("panic: %v", value)
			}
		}()
		err = s.redeliver(ctx, row)
	}()
	attributes := []slog.Attr{
		slog.String("payment_id", row.ID.String()), slog.String("operation", row.Operation), slog.String("payer", row.Payer),
		slog.Int("attempts", row.Attempts), slog.Float64("age_s", row.Now.Sub(row.CreatedAt).Seconds()),
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
		offer:   s.config.Network.Requirements(uint64(row.Amount), row.PayTo, maxTimeoutSeconds), //nolint:gosec // positive
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
