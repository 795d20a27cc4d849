package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
)

const (
	perHeader = 128 // bytes that a header takes beside its name and value

	// How long a caller may take to read a response: one that it has paid for, which may have 2 MiB, another one, and a refusal.
	paidWriteTime    = 30 * time.Second
	writeTime        = 5 * time.Second
	refusalWriteTime = time.Second
)

var tooManyHeaders = fmt.Sprintf("a request can have at most %d headers", maxHeaderLines)

// request is a request in progress. It can be displaced while it waits for its caller: to send the body, and to read the response.
type request struct {
	all      *connections
	on       *connection // nil in tests
	address  netip.Prefix
	response *http.ResponseController
	place    share // of all.requests
	bytes    share // of all.memory: headers and body, until the payment is certain
	sent     share // of all.sent: the response of a paid call, while the caller reads it
	state    requestState
}

type requestState int

const (
	reading requestState = iota
	complete
	responding
	displaced // by others
	ended
)

var errDisplaced = unavailable("the server needed the room of this unfinished request for others; wait for Retry-After seconds, "+
	"then send the same request", 1)

// errCrowded keeps an address from having so many requests at work that others find no room.
var errCrowded = unavailable("too many requests of this address are at work; wait for Retry-After seconds, then send the same request", 1)

type connectionKey struct{}

// withConnection makes the connection known to its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, admittedBelow(conn))
}

// admitRequest holds requests to their limits: headers, and as many as connections, in total and per address. With HTTP/2 one connection
// has several.
func (s *Server) admitRequest(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		lines, bytes := 0, len(c.Request().RequestURI)
		for name, values := range c.Request().Header {
			lines += len(values)
			for _, value := range values {
				bytes += perHeader + len(name) + len(value)
			}
		}
		if lines > maxHeaderLines { // with HTTP/1.1 they were refused while they arrived
			return refuseRequest(c, http.StatusRequestHeaderFieldsTooLarge, gen.ErrorCodeInvalidRequest, tooManyHeaders)
		}
		r := s.connections.begin(c.Request(), c.Response().Writer, s.clientAddress(c.Request()), bytes)
		if r == nil {
			s.connections.refused.Inc()
			c.Response().Header().Set("Retry-After", "1")
			return refuseRequest(c, http.StatusServiceUnavailable, gen.ErrorCodeUnavailable,
				"too many requests are in progress; wait for Retry-After seconds, then send the same request")
		}
		defer r.end()
		c.Set(requestKey, r)
		c.Response().Before(func() { r.respond(recordFrom(c)) })
		err := next(c)
		if c.Request().ProtoMajor > 1 {
			_ = r.response.Flush() // else net/http waits for the caller after the request is forgotten here
		}
		return err
	}
}

// begin counts a request, or returns nil if there are too many.
func (l *connections) begin(r *http.Request, w http.ResponseWriter, client netip.Prefix, bytes int) *request {
	on, _ := r.Context().Value(connectionKey{}).(*connection)
	begun := &request{all: l, on: on, address: client, response: http.NewResponseController(w)}
	begun.place.owner, begun.bytes.owner, begun.sent.owner = begun, begun, begun
	l.mu.Lock()
	defer l.unlock()
	if !l.requests.room(client, l.limits.perAddress(client.Addr())) {
		return nil
	}
	l.requests.hold(&begun.place, client, 1)
	l.memory.hold(&begun.bytes, client, bytes)
	return begun
}

// hold counts further bytes of the body. It returns errDisplaced if the request must end.
func (r *request) hold(bytes int) error {
	r.all.mu.Lock()
	defer r.all.unlock()
	if r.state == reading && bytes > 0 {
		r.all.memory.hold(&r.bytes, r.address, r.bytes.size+bytes)
	}
	if r.state == displaced {
		return errDisplaced
	}
	return nil
}

// finish ends the wait for the caller: its body is complete. It returns errDisplaced or errCrowded if the request must end.
func (r *request) finish() error {
	r.all.mu.Lock()
	defer r.all.unlock()
	switch {
	case r.state == displaced:
		return errDisplaced
	case r.state == reading && r.crowded():
		return errCrowded
	case r.state == reading:
		r.state = complete
		r.all.requests.set(&r.place, 0, false)
		r.all.memory.set(&r.bytes, r.bytes.size, false)
		r.on.work(1)
	}
	return nil
}

// crowded reports whether the address has as many requests at work as there is room for further ones. Without a limit for each address it
// has none here either.
func (r *request) crowded() bool {
	limits, all, own := r.all.limits, &r.all.requests, r.place.of
	return own.shares-own.size >= all.most-(all.shares-all.size) && limits.perAddress(r.address.Addr()) < limits.Connections
}

// respond lets the request wait for its caller again, who may not read the response, and limits how long that may take.
func (r *request) respond(record *record) {
	r.all.mu.Lock()
	defer r.all.unlock()
	limit := writeTime
	switch {
	case r.state == displaced:
		limit = refusalWriteTime
	case record != nil && record.paid:
		limit = paidWriteTime
	}
	// Before the request is counted: it may be displaced at once.
	_ = r.response.SetWriteDeadline(time.Now().Add(limit))
	switch r.state {
	case displaced:
		return
	case reading: // it is rejected before its body was read
		r.state = responding
	case complete:
		r.state = responding
		r.all.requests.set(&r.place, 1, true)
		r.all.memory.set(&r.bytes, r.bytes.size, true)
		r.on.work(-1)
	}
	if record != nil && record.responseBytes > 0 { // if it is displaced for them, the same payment gets the response again
		r.all.sent.hold(&r.sent, r.address, record.responseBytes)
	}
}

// wasDisplaced reports whether the request made room for others.
func (r *request) wasDisplaced() bool {
	if r == nil {
		return false
	}
	r.all.mu.Lock()
	defer r.all.unlock()
	return r.state == displaced
}

// release ends the count of its bytes: from here on the payment engine bounds what it holds.
func (r *request) release() {
	r.all.mu.Lock()
	defer r.all.unlock()
	r.all.memory.drop(&r.bytes)
}

// wait gives the request more time: it waits, and is released. The limits of net/http count from its beginning.
func (r *request) wait(limit time.Duration) {
	r.release()
	until := time.Now().Add(limit + responseTimeout)
	_, _ = r.response.SetReadDeadline(until), r.response.SetWriteDeadline(until)
}

// displace makes the reading of the body, or the writing of the response, fail. The caller holds the lock, so the response still exists.
func (r *request) displace() {
	r.all.displaced.Inc()
	end := r.response.SetReadDeadline
	if r.state == responding {
		end = r.response.SetWriteDeadline
	}
	r.forget(displaced)
	_ = end(time.Unix(1, 0))
}

// end ends the request.
func (r *request) end() {
	r.all.mu.Lock()
	defer r.all.unlock()
	if r.state == complete {
		r.on.work(-1)
	}
	if r.state != displaced {
		r.forget(ended)
	}
}

// forget removes the request. The caller holds the lock.
func (r *request) forget(state requestState) {
	r.state = state
	r.all.requests.drop(&r.place)
	r.all.memory.drop(&r.bytes)
	r.all.sent.drop(&r.sent)
}

// refuseRequest writes a response before the request has an id.
func refuseRequest(c echo.Context, status int, code gen.ErrorCode, message string) error {
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(refusalWriteTime))
	body := errorBody{Message: message, Code: code, RequestID: newRequestID()}
	setHeaders(c.Response().Header(), body.RequestID)
	return c.JSONBlob(status, body.encode())
}

// writeRefusal writes a response without net/http. Errors are ignored, because there is nobody to report them to.
func writeRefusal(to io.Writer, status int, code gen.ErrorCode, message string) {
	body := errorBody{Message: message, Code: code, RequestID: newRequestID()}
	raw := body.encode()
	fmt.Fprintf(to, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(raw), body.RequestID, raw)
}
