package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
)

const (
	maxUnpaidBody = 16 << 10        // bytes of a body that are read without a payment
	firstRead     = 4 << 10         // bytes of the first buffer; it doubles with what arrives
	bodyGrace     = 3 * time.Second // for the first bytes: a lost packet is sent again after one second, and then after two
	bodyRate      = 8 << 10         // bytes a second at which the rest must arrive at least
)

// readBody reads the body. From then on the request is complete: it does not wait for its caller, so others cannot displace it. What is no
// operation, such as a document, stays displaceable while its response is written.
func (s *Server) readBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		operation := operationFrom(c)
		if operation == nil {
			return next(c)
		}
		described := operation.route.Operation.RequestBody
		if described == nil { // the body of a GET has no meaning and is not read
			if err := requestFrom(c).finish(); err != nil {
				return err
			}
			if hasPayment(c) && c.Request().ContentLength == 0 { // else the rest of the request keeps its deadline
				setReadDeadline(c, time.Time{})
			}
			return next(c)
		}
		body, err := s.bodyOf(c, operation)
		if err != nil {
			return err
		}
		if len(body) == 0 && !described.Value.Required {
			body = emptyObject(c.Request())
		}
		c.Set(bodyKey, body)
		recordFrom(c).payment.body = len(body)
		return next(c)
	}
}

func setReadDeadline(c echo.Context, at time.Time) {
	_ = http.NewResponseController(c.Response()).SetReadDeadline(at)
}

// bodyOf reads the body and makes it readable again. A body that its Content-Length shows to be too long is not read.
func (s *Server) bodyOf(c echo.Context, operation *operation) ([]byte, error) {
	r, most := c.Request(), operation.bounds.bytes
	if operation.paid() && !hasPayment(c) {
		most = min(most, maxUnpaidBody)
	}
	var body []byte
	err := errTooLong
	switch {
	case r.ContentLength > int64(operation.bounds.bytes):
		most = operation.bounds.bytes
	case r.ContentLength <= int64(most):
		body, err = requestFrom(c).read(c, most)
	}
	switch {
	case errors.Is(err, errTooLong) && most < operation.bounds.bytes:
		return nil, s.challenge(c, operation)
	case errors.Is(err, errTooLong):
		return nil, &problem{status: http.StatusRequestEntityTooLarge, code: gen.ErrorCodeBodyTooLarge,
			message: fmt.Sprintf("the request body must have at most %d bytes", most)}
	case err != nil:
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

var errTooLong = errors.New("the body is too long")

// read reads a body of at most so many bytes. The deadline moves with what arrives, so a caller that sends slowly ends before requestTimeout.
func (r *request) read(c echo.Context, most int) ([]byte, error) {
	from := c.Request()
	bound := most + 1 // to notice a longer body
	if from.ContentLength >= 0 {
		bound = int(from.ContentLength) + 1 // to notice the end
	}
	began, counted := time.Now(), 0
	body := make([]byte, 0, min(firstRead, bound))
	for {
		arrived := time.Duration(len(body)) * time.Second / bodyRate
		setReadDeadline(c, began.Add(min(bodyGrace+arrived, requestTimeout)))
		if err := r.hold(cap(body) - counted); err != nil { // after the deadline was set: whoever displaces this request sets another
			return nil, err
		}
		counted = cap(body)
		n, err := from.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > most:
			setReadDeadline(c, began.Add(requestTimeout)) // net/http reads the rest
			return nil, errTooLong
		case errors.Is(err, io.EOF):
			deadline := began.Add(requestTimeout)
			if hasPayment(c) { // the read deadline must not end the wait for the settlement
				deadline = time.Time{}
			}
			setReadDeadline(c, deadline)
			return body, r.finish()
		case err != nil:
			if displaced := r.hold(0); displaced != nil {
				return nil, displaced
			}
			return nil, &problem{status: http.StatusBadRequest, code: gen.ErrorCodeInvalidRequest, cause: err,
				message: "the request body was truncated; send the same request again", details: []gen.ErrorDetail{{Message: "was truncated"}}}
		case len(body) == cap(body):
			body = append(make([]byte, 0, min(2*cap(body), bound)), body...)
		}
	}
}

// emptyObject gives a request without body, where the contract allows that, the body {}. A payment then has the same fingerprint
// with both.
func emptyObject(r *http.Request) []byte {
	body := []byte("{}")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	return body
}
