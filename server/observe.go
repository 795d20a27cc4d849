package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/internal/buildinfo"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/server/operator"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// record is what is known of a request: the fields of its log line, and below the input of its handler. Keys, TANs,
// payment payloads and message content are never logged.
type record struct {
	requestID   string
	operation   *operation
	agentID     string
	payer       string
	transaction string
	paid        bool         // by this call, not by an earlier one
	buckets     payerBuckets // charged if the call ends unpaid
	code        gen.ErrorCode
	cause       error

	caller      *store.Agent     // nil if the operation needs no API key
	keyReplaced bool             // the API key was replaced by the last rotation
	attempt     *payment.Attempt // of a paid operation
	mayWait     bool             // the call asks for it, and has not waited yet
	wait        *wait            // not nil: the call is to wait
	waited      time.Duration    // not counted as time that the request took
}

var goodRequestID = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func newRequestID() string {
	var id [8]byte
	_, _ = rand.Read(id[:])
	return "req_" + hex.EncodeToString(id[:])
}

// observe sets the request id, handles errors and panics, and logs the request in one line.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		s.running.Add(1)
		defer s.running.Add(-1)
		request := c.Request()
		record := &record{requestID: request.Header.Get("X-Request-Id")}
		if !goodRequestID.MatchString(record.requestID) {
			record.requestID = newRequestID()
		}
		c.Set(recordKey, record)
		setHeaders(c.Response().Header(), record.requestID)
		if err := s.catch(next, c); err != nil {
			s.writeError(err, c)
		}
		took := time.Since(started) - record.waited
		name := operator.OutsideContract
		if record.operation != nil {
			name = record.operation.ID
		}
		s.metrics.requests.WithLabelValues(name, strconv.Itoa(c.Response().Status)).Inc()
		s.metrics.seconds.WithLabelValues(name).Observe(took.Seconds())
		s.history.Add(name, c.Response().Status, took, started)
		if status := c.Response().Status; record.attempt != nil && (record.paid || status >= http.StatusInternalServerError) {
			s.outcomes.add(!record.paid, time.Now()) // when it ended: took leaves out what it waited
		}
		s.refusals.add(record.code, name, started)
		s.logRequest(c, record, took)
		return nil
	}
}

// setHeaders sets the headers of every response. Documents replace Cache-Control.
func setHeaders(header http.Header, requestID string) {
	header.Set("X-Request-Id", requestID)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
}

// catch turns a panic into an error with its stack trace.
func (s *Server) catch(next echo.HandlerFunc, c echo.Context) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v\n%s", value, debug.Stack())
		}
	}()
	return next(c)
}

func (s *Server) logRequest(c echo.Context, record *record, took time.Duration) {
	status, method, displaced, omitted := c.Response().Status, c.Request().Method, edge.RequestOf(c).Displaced(), int64(0)
	if status == http.StatusTooManyRequests || status == statusHungUp || displaced || method == http.MethodOptions {
		var ok bool
		if omitted, ok = s.limitedLines.Take(); !ok {
			return
		}
	}
	level := slog.LevelInfo
	if status >= http.StatusInternalServerError && !displaced {
		level = slog.LevelError
	}
	attributes := []slog.Attr{
		slog.String("request_id", record.requestID), slog.String("method", knownMethod(method)), slog.Int("status", status),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	}
	if record.operation != nil {
		attributes = append(attributes, slog.String("operation", record.operation.ID),
			slog.String("price", x402.FormatUSD(record.operation.Price)))
	}
	for _, text := range []struct{ key, value string }{
		{"agent_id", record.agentID}, {"payer", record.payer}, {"transaction", record.transaction}, {"code", string(record.code)},
	} {
		if text.value != "" {
			attributes = append(attributes, slog.String(text.key, text.value))
		}
	}
	if span := trace.SpanFromContext(c.Request().Context()); span.IsRecording() {
		of := span.SpanContext()
		attributes = append(attributes, slog.String("trace_id", of.TraceID().String()), slog.String("span_id", of.SpanID().String()))
		span.SetAttributes(attribute.String("parley.request_id", record.requestID), attribute.String("parley.code", string(record.code)))
		if record.operation != nil {
			span.SetName(method + " " + c.Path())
		}
	}
	if record.waited > 0 {
		attributes = append(attributes, slog.Float64("waited_ms", float64(record.waited.Microseconds())/1000))
	}
	if omitted > 0 {
		attributes = append(attributes, slog.Int64("omitted", omitted))
	}
	if record.cause != nil {
		attributes = append(attributes, slog.String("error", record.cause.Error()))
	}
	s.log.LogAttrs(c.Request().Context(), level, "request", attributes...)
}

// knownMethod returns a method of HTTP, or _OTHER as OpenTelemetry does: the caller chooses its text and length.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect,
		http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

// metrics have operations and statuses as labels, never payers or content.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	limited  *prometheus.CounterVec
}

// scraped is the database when metrics are collected.
type scraped struct{ *store.Store }

func (s scraped) up() float64 {
	ctx, cancel := context.WithTimeout(context.Background(), pingTime)
	defer cancel()
	if s.Ping(ctx) != nil {
		return 0
	}
	return 1
}

func newMetrics(database *store.Store, running *atomic.Int64) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_requests_total",
			Help: "Requests by operation and status."}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "parley_request_seconds",
			Help:    "How long requests take, settlement included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 90}}, []string{"operation"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "parley_rate_limited_total",
			Help: "Calls rejected with 429, by limit: address, account, wallet or tan."}, []string{"limit"}),
	}
	build := buildinfo.Read()
	connections := func(state string, count func(store.PoolStatistics) int64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_database_connections",
			Help: "Connections to the database by state (in_use, idle).", ConstLabels: prometheus.Labels{"state": state}},
			func() float64 { return float64(count(database.Pool())) })
	}
	m.registry.MustRegister(m.requests, m.seconds, m.limited,
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsScheduler)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("parley_clock_difference_seconds", "How far the clock of this machine is ahead of the database's.",
			func() float64 { return database.ClockDifference().Seconds() }),
		gauge("parley_requests_running", "Requests that run now.", func() float64 { return float64(running.Load()) }),
		gauge("parley_database_up", "0 while the database does not respond.", scraped{database}.up),
		connections("in_use", func(pool store.PoolStatistics) int64 { return pool.InUse }),
		connections("idle", func(pool store.PoolStatistics) int64 { return pool.Idle }),
		gauge("parley_database_connections_max", "The most connections to the database.", func() float64 { return float64(database.Pool().Max) }),
		counter("parley_database_waits_total", "How often a call found no idle connection.",
			func() float64 { return float64(database.Pool().Waits) }),
		counter("parley_database_wait_seconds_total", "How long calls waited for a connection, and got one.",
			func() float64 { return database.Pool().Waited.Seconds() }),
		counter("parley_database_waits_failed_total", "How often a call got no connection in time.",
			func() float64 { return float64(database.Pool().Failed) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_build_info",
			Help: "The program: version, revision, Go version, and the schema that it needs.",
			ConstLabels: prometheus.Labels{"version": parley.Version(), "revision": cmp.Or(build.Commit, "unknown"),
				"go": cmp.Or(build.Go, "unknown"), "schema": strconv.FormatInt(store.SchemaVersion(), 10)}}, func() float64 { return 1 }),
	)
	return m
}

func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

func counter(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read)
}

// announce creates the counters of an operation that alerts watch, and the counters of the limits. Prometheus takes no increase from a
// counter that appears with its first event.
func (m *metrics) announce(operations map[string]*operation) {
	for id := range operations {
		for _, status := range []string{"200", "500", "503"} {
			m.requests.WithLabelValues(id, status)
		}
	}
	for _, limit := range []string{"address", "account", "wallet", "tan"} {
		m.limited.WithLabelValues(limit)
	}
}
