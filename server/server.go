// Package server is the HTTP server: routes and middleware, handlers of the contract's operations, access rules, and
// errors. Package payment handles the payments.
package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/buildinfo"
	"github.com/parley-chat/parley/internal/discovery"
	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/server/operator"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Config is the operator's configuration.
type Config struct {
	BaseURL        string       // URL of the server, for the contract and the payment requirements
	Network        x402.Network // network and token of the payments
	PayTo          string       // payee address
	FacilitatorURL string       // for the contract only
	Skill          Skill
	Channels       channel.Config
	Secrets        []Secret // API keys and TANs are derived from the first one; former ones count until theirs are used
	Limits         edge.Limits
	Retention      store.Retention
	DrainTime      time.Duration // how long the server is not ready, but serves, before it stops
	// CheckTime is how long a check of the operator's page may take; 0: a second. A figure may take twice as long. After one and a half the
	// page shows the last known ones.
	CheckTime time.Duration
	// TLS, if not nil, encrypts the connections.
	TLS *edge.TLS
	// Await, if not nil, returns when the database can be used. Until then calls that need it return 503. An error ends the server.
	Await func(context.Context) error
	// Trace, if not nil, wraps the handler of all requests: otelhttp.
	Trace func(http.Handler) http.Handler
}

// Skill describes the agent skill (GET /skill).
type Skill struct {
	Summary, HubURL, InstallNPX, InstallCLI string
}

// Server implements the contract's operations.
type Server struct {
	config       Config
	store        *store.Store
	payments     *payment.Engine
	channels     *channel.Scheme // nil if payment channels are not offered
	log          *slog.Logger
	operations   map[string]*operation // by "METHOD /path"
	byID         map[string]*operation
	documents    []discovery.Document
	health       health
	service      operator.Service
	history      *operator.CallHistory
	refusals     refusals
	outcomes     paidOutcomes
	figures      figures
	echo         *echo.Echo
	metrics      *metrics
	rates        *rateLimits
	limitedLines *edge.LogLimit // of free requests
	tanTurns     chan struct{}  // see tanTry.try
	connections  *edge.Connections
	retention    *retention.Worker
	draining     atomic.Bool  // /readyz returns 503
	room         *waitingRoom // of calls with wait
	waiting      atomic.Bool  // for Config.Await
	running      atomic.Int64 // requests
}

// responseTime is how long a response takes at most: it waits for the settlement.
const responseTime = payment.Lease + 15*time.Second

// New reads the contract and prepares everything that is the same for all requests.
func New(config Config, database *store.Store, facilitator payment.Facilitator, chain payment.Chain, log *slog.Logger) (*Server, error) {
	document, operations, err := readContract()
	if err != nil {
		return nil, err
	}
	config.Limits = config.Limits.WithDefaults()
	config.CheckTime = cmp.Or(config.CheckTime, time.Second)
	s := &Server{
		config: config, store: database, log: log, operations: operations, byID: map[string]*operation{},
		rates: newRateLimits(config.Limits), connections: edge.New(config.Limits, responseTime, Refusal),
		tanTurns:     make(chan struct{}, maxTANTurns),
		limitedLines: edge.NewLogLimit(), retention: retention.New(database, config.Retention, log), history: operator.NewCallHistory(time.Now()),
		refusals: refusals{byCode: map[gen.ErrorCode]operator.Refusal{}},
		figures:  figures{revenue: map[time.Time]partSums{}},
		service: operator.Service{BaseURL: config.BaseURL, Network: config.Network.ID, Payee: config.PayTo, Version: parley.Version(),
			Revision: buildinfo.Read().Commit, Started: time.Now(), Channels: config.Channels.Authorizer != nil},
	}
	var paid []*payment.Operation
	for _, operation := range operations {
		s.byID[operation.ID] = operation
		if !operation.paid() {
			continue
		}
		entry, err := discovery.BazaarEntry(operation.route.Operation, operation.route.Method, operation.Account)
		if err != nil {
			return nil, err
		}
		operation.Extensions = map[string]jsontext.Value{"bazaar": entry}
		paid = append(paid, &operation.Operation)
	}
	if len(config.Secrets) == 0 {
		return nil, errors.New("no secret to derive API keys and TANs from")
	}
	terms := payment.Config{Network: config.Network, PayTo: config.PayTo, BaseURL: config.BaseURL}
	s.payments = payment.New(terms, database, facilitator, chain, log)
	schemes, err := s.schemes()
	if err != nil {
		return nil, err
	}
	if err := s.payments.Offer(paid, schemes...); err != nil {
		return nil, err
	}
	var described []discovery.Operation
	for _, operation := range operations {
		if operation.paid() {
			if operation.challenges, err = s.newChallenges(operation); err != nil {
				return nil, err
			}
		}
		described = append(described, discovery.Operation{
			Method: operation.route.Method, Path: operation.Path, Described: operation.route.Operation,
			Price: operation.Price, Requirements: operation.Requirements(),
		})
	}
	published := discovery.Config{BaseURL: config.BaseURL, FacilitatorURL: config.FacilitatorURL}
	if s.documents, err = discovery.Documents(document, published, described); err != nil {
		return nil, err
	}
	s.waiting.Store(config.Await != nil)
	s.room = newWaitingRoom(waitingShare(config.Limits), database.HaveUnread)
	database.Listen(s.room.hear)
	s.metrics = newMetrics(database, &s.running)
	s.metrics.announce(s.byID)
	s.metrics.registry.MustRegister(slices.Concat(s.payments.Collectors(), s.connections.Collectors(), database.Collectors(),
		s.retention.Collectors(), config.TLS.Collectors(), s.room.collectors())...)
	s.echo = s.routes()
	return s, nil
}

// Handler handles requests.
func (s *Server) Handler() http.Handler {
	if s.config.Trace == nil {
		return s.echo
	}
	return s.config.Trace(s.echo)
}

// routes registers the operations, the published documents, and the middleware in the order in which they run.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = s.writeError
	e.Use(s.connections.Admit) // limits of requests, headers and memory
	e.Use(
		s.observe,                  // request id, log line, errors and panics
		s.allowCORS,                // for agents in browsers; a preflight request takes a token
		before(s.resolveOperation), // finds the operation
		s.limitUnpaid,              // before any work; a paid call takes no token
		before(
			s.readBody,       // up to the limit of the operation; without payment 16 KiB, then 402
			s.priceInquiry,   // 402 if there is neither payment nor body
			s.validate,       // 400: mistakes are free
			s.requirePayment, // 402 if there is no payment
			s.awaitDatabase,  // 503 before the first connection to the database
		),
		s.refund,       // of a payment channel, on GET operations; needs no API key
		s.waitUnread,   // holds a call with wait between two runs of what follows
		s.limitTime,    // of what uses the database
		s.authenticate, // 401; 403 for a free operation if the account is suspended
		before(
			s.parsePayment,  // 402 or 409 if it is not for this call; the facilitator is not asked yet
			s.limitPayments, // 429: a payment costs a look at the signature and at the ledger
		),
		s.beginWait, // ends the first run of a call that is to wait
	)
	// The payment middleware runs the handlers: see contractHandlers.
	gen.RegisterHandlers(withHead{e, s.operations}, gen.NewStrictHandler(contractHandlers, []gen.StrictMiddlewareFunc{s.paymentMiddleware}))
	for _, document := range s.documents {
		e.Match([]string{http.MethodGet, http.MethodHead}, document.Path, s.publish(document))
	}
	return e
}

// withHead registers HEAD beside the GET of a free operation: net/http leaves out the body.
type withHead struct {
	*echo.Echo
	operations map[string]*operation
}

func (h withHead) GET(path string, handler echo.HandlerFunc, middleware ...echo.MiddlewareFunc) *echo.Route {
	if !h.operations[http.MethodGet+" "+path].paid() {
		h.HEAD(path, handler, middleware...)
	}
	return h.Echo.GET(path, handler, middleware...)
}

// before is the middleware that runs steps, and then the next handler unless one of them fails.
func before(steps ...echo.HandlerFunc) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			for _, step := range steps {
				if err := step(c); err != nil {
					return err
				}
			}
			return next(c)
		}
	}
}

// Recover completes payments that a crash, a lost response or an unavailable facilitator left open, until ctx ends.
func (s *Server) Recover(ctx context.Context) { s.payments.Recover(ctx, s.restore) }

// Serve handles requests and recovers payments until ctx ends. Then /readyz returns 503. After the drain time, when load balancers
// have noticed, it stops accepting requests, and waits for running ones, so that no settlement is cut off.
func (s *Server) Serve(ctx context.Context, accepting net.Listener) error {
	present, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	working, stop := context.WithCancel(present)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	failed := make(chan error, 2)
	begin := func() {
		ready := make(chan struct{})
		go s.store.BePresent(present, func() { close(ready) })
		<-ready
		for _, work := range []func(context.Context){s.watchClock, s.Recover, s.retention.Run} {
			workers.Go(func() { work(working) })
		}
		s.waiting.Store(false)
	}
	if s.waiting.Load() {
		workers.Go(func() {
			if err := s.config.Await(working); err != nil {
				failed <- err
				return
			}
			begin()
		})
	} else {
		begin()
	}
	//nolint:contextcheck // a handshake has its own deadline
	server, limited := s.connections.NewServer(accepting, s.Handler(), s.config.TLS, s.log)
	go func() { failed <- server.Serve(limited) }()
	select {
	case err := <-failed:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	s.draining.Store(true)
	s.room.close()
	began := time.Now()
	s.log.LogAttrs(ctx, slog.LevelInfo, "stopping", slog.String("reason", context.Cause(ctx).Error()),
		slog.Int64("requests_running", s.running.Load()), slog.Float64("drain_s", s.config.DrainTime.Seconds()))
	select {
	case err := <-failed:
		return err
	case <-time.After(s.config.DrainTime):
	}
	finishing := s.running.Load()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), payment.Lease)
	defer cancel()
	err := server.Shutdown(stopping)
	s.log.LogAttrs(ctx, slog.LevelInfo, "stopped", slog.Float64("took_s", time.Since(began).Seconds()),
		slog.Int64("requests_finished", finishing-s.running.Load()), slog.Int64("requests_cut_off", s.running.Load()))
	return err
}

// awaitDatabase rejects paid calls until the first successful connection to the database.
func (s *Server) awaitDatabase(c echo.Context) error {
	if operationFrom(c).paid() && s.waiting.Load() {
		return errUnavailable
	}
	return nil
}

// limitTime sets the deadline of a call, whose body has arrived. What happens after the settlement of a payment has another one.
func (s *Server) limitTime(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		request := c.Request()
		ctx, cancel := s.store.LimitCall(request.Context())
		defer cancel()
		defer c.SetRequest(request) // shows whether the caller has hung up
		c.SetRequest(request.WithContext(ctx))
		return next(c)
	}
}

// allowCORS lets browsers send and read the payment headers, and responds to preflight requests, which no other middleware sees.
func (s *Server) allowCORS(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { // not the library's middleware around next: its frame would stay on the stacks of calls that wait
		if c.Request().Method == http.MethodOptions {
			if err := s.takeToken(c); err != nil {
				return err
			}
		}
		if err := setCORS(c); err != nil || c.Response().Committed {
			return err
		}
		return next(c)
	}
}

// setCORS sets the headers for browsers. The official fetch client sends Access-Control-Expose-Headers as a request header.
var setCORS = middleware.CORSWithConfig(middleware.CORSConfig{
	AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions},
	AllowHeaders: []string{"PAYMENT-SIGNATURE", "X-PAYMENT", "X-API-KEY", "Content-Type", "Access-Control-Expose-Headers", "X-Request-Id",
		payment.HeaderIdempotencyKey},
	ExposeHeaders: []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE", "Idempotent-Replayed", "X-Request-Id",
		"Retry-After", "RateLimit-Policy", "RateLimit", "WWW-Authenticate"},
	MaxAge: 600,
})(func(echo.Context) error { return nil })

// resolveOperation finds the operation of the route. Other paths and methods reach the router's 404 and 405.
func (s *Server) resolveOperation(c echo.Context) error {
	operation := s.operations[c.Request().Method+" "+c.Path()]
	if c.Request().Method == http.MethodHead {
		if get := s.operations[http.MethodGet+" "+c.Path()]; !get.paid() {
			operation = get
		}
	}
	if operation != nil {
		recordFrom(c).operation = operation
		c.Set(operationKey, operation)
	}
	return nil
}

const (
	operationKey = "parley.operation"
	bodyKey      = "parley.body"
	recordKey    = "parley.record"
)

// fromContext returns what a middleware has set, or the zero value.
func fromContext[T any](c echo.Context, key string) T {
	value, _ := c.Get(key).(T)
	return value
}

func operationFrom(c echo.Context) *operation { return fromContext[*operation](c, operationKey) }
func bodyFrom(c echo.Context) []byte          { return fromContext[[]byte](c, bodyKey) }
func recordFrom(c echo.Context) *record       { return fromContext[*record](c, recordKey) }
