// Package server is Parley over HTTP: handlers for the contract's operations, and the one straight way that each
// request takes to them.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// Config is what the operator decides.
type Config struct {
	BaseURL        string       // how callers reach the server; in the contract and in each price
	Network        x402.Network // where payments are made, and in which token
	PayTo          string       // who is paid
	FacilitatorURL string       // for the contract; calls go through the Facilitator
	Skill          Skill
	LegacyX402     bool // also publish /.well-known/x402, which only old crawlers read and new ones warn about
	Limits         Limits
}

// Skill is where and how the operator publishes the agent skill (GET /skill).
type Skill struct {
	Summary, HubURL, InstallNPX, InstallCLI string
}

// Server implements the contract's operations.
type Server struct {
	config      Config
	store       *store.Store
	facilitator *guard
	chain       Chain
	contracts   *smartWallets
	log         *slog.Logger
	checker     x402.Checker
	operations  map[string]*operation // by "METHOD /path"
	byID        map[string]*operation
	documents   []published
	health      health
	echo        *echo.Echo
	wake        chan struct{} // for the recovery worker: there is more to be done
	slots       *slots
	unwritten   unclearPayments
	metrics     *metrics
	rates       *rateLimits
	wallets     *wallets
	payingKeys  *payingKeys
	tanTries    *tanTries
	connections *connections
}

var _ gen.StrictServerInterface = (*Server)(nil)

// New reads the contract and prepares what does not change from request to request.
func New(config Config, database *store.Store, facilitator Facilitator, chain Chain, log *slog.Logger) (*Server, error) {
	document, operations, err := readContract(parley.Contract)
	if err != nil {
		return nil, err
	}
	checker, err := x402.NewChecker(config.Network)
	if err != nil {
		return nil, err
	}
	config.Limits = config.Limits.withDefaults()
	s := &Server{
		config: config, store: database, facilitator: newGuard(facilitator, log), chain: chain, log: log, checker: checker,
		operations: operations, byID: map[string]*operation{}, wake: make(chan struct{}, 1), slots: newSlots(),
		contracts: newSmartWallets(chain, time.Now),
		rates:     newRateLimits(config.Limits), wallets: newWallets(), payingKeys: newPayingKeys(), tanTries: newTANTries(),
		connections: newConnections(config.Limits),
	}
	s.metrics = newMetrics(database, s.facilitator)
	s.metrics.registry.MustRegister(s.connections.collectors()...)
	for _, operation := range operations {
		s.byID[operation.id] = operation
		if operation.price == 0 {
			continue
		}
		operation.offers = offersFor(config, operation.price)
		entry, err := bazaar(operation.route.Operation, operation.route.Method)
		if err != nil {
			return nil, err
		}
		operation.extensions = map[string]jsontext.Value{"bazaar": entry, identifierExtension: identifierOffer}
		if operation.challenge, err = s.newChallenge(operation); err != nil {
			return nil, fmt.Errorf("price of %s: %w", operation.id, err)
		}
	}
	contract, err := publish(parley.Contract, config, operations)
	if err != nil {
		return nil, err
	}
	discovery, err := discover(document, config, operations)
	if err != nil {
		return nil, err
	}
	s.documents = slices.Concat(contract, discovery)
	s.echo = s.way()
	return s, nil
}

// Handler answers requests.
func (s *Server) Handler() http.Handler { return s.echo }

// way is the way of every request, top to bottom.
func (s *Server) way() *echo.Echo {
	e := echo.New()
	e.HTTPErrorHandler = s.answerError
	e.Use(
		s.observe,     // names the request, logs it once, turns errors and panics into answers: so it sees everything
		allowCORS,     // agents in browsers; a preflight asks for no money
		s.find,        // the operation, once
		s.limitUnpaid, // before any work; a call that turns out to be paid takes nothing
		s.readBody,    // bounded
		s.inquire,     // "what does it cost?" has neither payment nor body, and gets its 402 whatever else is missing
		s.validate,    // before the price: a mistake is told free of charge, not after signing
		s.demand,      // no payment attached: 402
		s.authenticate,
		s.match, // the payment's form and fit, without asking anybody
		s.limitPayments,
	)
	// The gate stands around the typed handlers: it must be able to run them twice, and to see their answer.
	gen.RegisterHandlers(e, gen.NewStrictHandler(s, []gen.StrictMiddlewareFunc{s.gate}))
	for _, document := range s.documents {
		e.GET(document.path, document.serve)
	}
	return e
}

// Serve answers on the listener and recovers payments until ctx ends, then lets running requests finish: a settlement
// on its way must not be cut off.
func (s *Server) Serve(ctx context.Context, accepting net.Listener) error {
	present, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	ready := make(chan struct{})
	go s.store.BePresent(present, func() { close(ready) })
	<-ready
	recovering, stop := context.WithCancel(present)
	var worker sync.WaitGroup
	defer worker.Wait()
	defer stop()
	worker.Go(func() { s.Recover(recovering) })
	limited := listener{accepting, s.connections}
	server := &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      lease + 15*time.Second, // an answer waits for its settlement
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnState:         s.connections.observe,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(limited) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
	defer cancel()
	return server.Shutdown(stopping)
}

// allowCORS lets browsers call and read the payment headers. The official fetch client sends
// Access-Control-Expose-Headers as a request header.
var allowCORS = middleware.CORSWithConfig(middleware.CORSConfig{
	AllowMethods:  []string{http.MethodGet, http.MethodPost, http.MethodOptions},
	AllowHeaders:  []string{"PAYMENT-SIGNATURE", "X-PAYMENT", "X-API-KEY", "Content-Type", "Access-Control-Expose-Headers", "X-Request-Id"},
	ExposeHeaders: []string{"PAYMENT-REQUIRED", "PAYMENT-RESPONSE", "X-PAYMENT-RESPONSE", "X-Request-Id", "Retry-After", "RateLimit-Policy", "RateLimit"},
	MaxAge:        600,
})

// find puts the routed operation into the context. Paths and methods outside the contract go on to the
// router's 404 and 405.
func (s *Server) find(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := s.operations[c.Request().Method+" "+c.Path()]
		if operation == nil {
			return next(c)
		}
		recordFrom(c).operation = operation
		c.Set(operationKey, operation)
		return next(c)
	}
}

// readBody puts the body into the context.
func (s *Server) readBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation == nil {
			return next(c)
		}
		if operation.route.Operation.RequestBody != nil { // what comes with a GET means nothing and is not read
			body, err := bodyOf(c.Request(), operation.bounds.bytes)
			if err != nil {
				return err
			}
			c.Set(bodyKey, body)
		} else if c.Request().ContentLength != 0 {
			return next(c) // what is left of the request keeps its deadline
		}
		if hasPayment(c) {
			// The request is here. Its deadline must not end the wait for a settlement.
			_ = http.NewResponseController(c.Response()).SetReadDeadline(time.Time{})
		}
		return next(c)
	}
}

const (
	operationKey = "parley.operation"
	bodyKey      = "parley.body"
	recordKey    = "parley.record"
)

func operationFrom(c echo.Context) *operation {
	operation, _ := c.Get(operationKey).(*operation)
	return operation
}

func bodyFrom(c echo.Context) []byte {
	body, _ := c.Get(bodyKey).([]byte)
	return body
}
