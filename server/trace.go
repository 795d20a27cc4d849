package server

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/trace"
)

// knownMethod returns a method of HTTP, or _OTHER as OpenTelemetry does: the caller chooses its text and length.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect,
		http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

// trace records a sampled request. It ignores the trace context of the caller: a stranger who pays nothing must not decide what is
// recorded. X-Request-Id leads from the caller's trace to this one.
func (s *Server) trace(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, span := s.config.Tracer.Root(c.Request().Context(), "request", trace.SpanKindServer)
		if !span.Recording() {
			return next(c)
		}
		c.SetRequest(c.Request().WithContext(ctx))
		err := next(c) // nil: observe has handled it
		record, status := recordFrom(c), c.Response().Status
		if record.operation != nil {
			span.Name(c.Request().Method + " " + c.Path())
			span.Set("http.route", c.Path())
			span.Set("parley.operation", record.operation.ID)
		}
		span.Set("http.request.method", knownMethod(c.Request().Method))
		span.SetInt("http.response.status_code", status)
		span.Set("parley.request_id", record.requestID)
		span.Set("parley.agent_id", record.agentID)
		span.Set("parley.payer", record.payer)
		span.Set("parley.transaction", record.transaction)
		span.Set("parley.code", string(record.code))
		span.Set("parley.paid", strconv.FormatBool(record.paid))
		span.End(status >= http.StatusInternalServerError)
		return err
	}
}
