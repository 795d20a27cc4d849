package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	perHeader = 128 // bytes that a header takes beside its name and value

	// How long a caller may take to read a response: one that it has paid for, which may have 2 MiB, another one, and a refusal.
	paidWriteTime    = 30 * time.Second
	writeTime        = 5 * time.Second
	refusalWriteTime = time.Second
)

var tooManyHeaders = fmt.Sprintf("a request can have at most %d headers", maxHeaderLines)

// Request is a request in progress. It can be displaced while it waits for its caller: to send the body, and to read the response.
type Request struct {
	all      *Connections
	on       *connection // nil in tests
	address  netip.Prefix
	response *http.ResponseController
	place    Share // of all.requests
	bytes    Share // of all.memory: headers and body, until the payment is certain
	sent     Share // of all.sent: the response of a paid call, while the caller reads it
	state    requestState

	paid   bool // the response is the one of a paid call
	stored int  // bytes of a response that the ledger has, so that the same payment gets it again
}

// Address returns the network of the client.
func (r *Request) Address() netip.Prefix { return r.address }

// Deliver says that the response has so many bytes and is in the ledger, and whether this request paid for it.
func (r *Request) Deliver(bytes int, paid bool) { r.stored, r.paid = bytes, paid }

type requestState int

const (
	reading requestState = iota
	complete
	responding
	displaced // by others
	ended
)

// The errors of a request whose response is 503: it was not executed, and its payment was not read.
var (
	ErrDisplaced = errors.New("the server needed the room of this unfinished request for others; wait for Retry-After seconds, " +
		"then send the same request")
	// ErrCrowded keeps an address from having so many requests at work that others find no room.
	ErrCrowded = errors.New("too many requests of this address are at work; wait for Retry-After seconds, then send the same request")
)

type connectionKey struct{}

// withConnection makes the connection known to its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, admittedBelow(conn))
}

// requestKey is where Admit keeps the request in the context of Echo.
const requestKey = "parley.request"

// RequestOf returns the request that Admit has admitted; nil without Admit.
func RequestOf(c echo.Context) *Request {
	r, _ := c.Get(requestKey).(*Request)
	return r
}

// Admit is the middleware that holds requests to their limits: headers, and as many as connections, in total and per address. With HTTP/2
// one connection has several.
func (l *Connections) Admit(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		lines, bytes := 0, len(c.Request().RequestURI)
		for name, values := range c.Request().Header {
			lines += len(values)
			for _, value := range values {
				bytes += perHeader + len(name) + len(value)
			}
		}
		if lines > maxHeaderLines { // with HTTP/1.1 they were refused while they arrived
			return l.refuseRequest(c, http.StatusRequestHeaderFieldsTooLarge, tooManyHeaders)
		}
		r := l.begin(c.Request(), c.Response().Writer, l.limits.clientAddress(c.Request()), bytes)
		if r == nil {
			l.refused.Inc()
			return l.refuseRequest(c, http.StatusServiceUnavailable,
				"too many requests are in progress; wait for Retry-After seconds, then send the same request")
		}
		defer r.end()
		c.Set(requestKey, r)
		c.Response().Before(r.respond)
		err := next(c)
		if c.Request().ProtoMajor > 1 {
			_ = r.response.Flush() // else net/http waits for the caller after the request is forgotten here
		}
		return err
	}
}

// begin counts a request, or returns nil if there are too many.
func (l *Connections) begin(r *http.Request, w http.ResponseWriter, client netip.Prefix, bytes int) *Request {
	on, _ := r.Context().Value(connectionKey{}).(*connection)
	begun := &Request{all: l, on: on, address: client, response: http.NewResponseController(w)}
	begun.place.Owner, begun.bytes.Owner, begun.sent.Owner = begun, begun, begun
	l.mu.Lock()
	defer l.unlock()
	if !l.requests.MakeRoom(client, l.limits.perAddress(client.Addr())) {
		return nil
	}
	l.requests.Hold(&begun.place, client, 1)
	l.memory.Hold(&begun.bytes, client, bytes)
	return begun
}

// hold counts further bytes of the body. It returns ErrDisplaced if the request must end.
func (r *Request) hold(bytes int) error {
	r.all.mu.Lock()
	defer r.all.unlock()
	if r.state == reading && bytes > 0 {
		r.all.memory.Hold(&r.bytes, r.address, r.bytes.size+bytes)
	}
	if r.state == displaced {
		return ErrDisplaced
	}
	return nil
}

// Finish ends the wait for the caller: its body is complete. It returns ErrDisplaced or ErrCrowded if the request must end.
func (r *Request) Finish() error {
	r.all.mu.Lock()
	defer r.all.unlock()
	switch {
	case r.state == displaced:
		return ErrDisplaced
	case r.state == reading && r.crowded():
		return ErrCrowded
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
func (r *Request) crowded() bool {
	limits, all, own := r.all.limits, &r.all.requests, r.place.of
	return own.Shares-own.size >= all.most-(all.Shares-all.size) && limits.perAddress(r.address.Addr()) < limits.Connections
}

// respond lets the request wait for its caller again, who may not read the response, and limits how long that may take.
func (r *Request) respond() {
	r.all.mu.Lock()
	defer r.all.unlock()
	limit := writeTime
	switch {
	case r.state == displaced:
		limit = refusalWriteTime
	case r.paid:
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
	if r.stored > 0 { // if it is displaced for them, the same payment gets the response again
		r.all.sent.Hold(&r.sent, r.address, r.stored)
	}
}

// Displaced reports whether the request made room for others.
func (r *Request) Displaced() bool {
	if r == nil {
		return false
	}
	r.all.mu.Lock()
	defer r.all.unlock()
	return r.state == displaced
}

// Release ends the count of its bytes: from here on the payment engine bounds what it holds.
func (r *Request) Release() {
	r.all.mu.Lock()
	defer r.all.unlock()
	r.all.memory.Drop(&r.bytes)
}

// Wait gives the request more time: it waits, and is released. The limits of net/http count from its beginning.
func (r *Request) Wait(limit time.Duration) {
	r.Release()
	until := time.Now().Add(limit + r.all.responseTime)
	_, _ = r.response.SetReadDeadline(until), r.response.SetWriteDeadline(until)
}

// Displace makes the reading of the body, or the writing of the response, fail. The caller holds the lock, so the response still exists.
func (r *Request) Displace() {
	r.all.displaced.Inc()
	end := r.response.SetReadDeadline
	if r.state == responding {
		end = r.response.SetWriteDeadline
	}
	r.forget(displaced)
	_ = end(time.Unix(1, 0))
}

// end ends the request.
func (r *Request) end() {
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
func (r *Request) forget(state requestState) {
	r.state = state
	r.all.requests.Drop(&r.place)
	r.all.memory.Drop(&r.bytes)
	r.all.sent.Drop(&r.sent)
}

// refuseRequest writes a response before the request has an id.
func (l *Connections) refuseRequest(c echo.Context, status int, message string) error {
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(refusalWriteTime))
	header, body := l.refusal(status, message)
	maps.Copy(c.Response().Header(), header)
	c.Response().WriteHeader(status)
	_, err := c.Response().Write(body)
	return err
}

// writeRefusal writes a response without net/http. Errors are ignored, because there is nobody to report them to.
func (l *Connections) writeRefusal(to io.Writer, status int, message string) {
	header, body := l.refusal(status, message)
	response := http.Response{StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: header, Close: true,
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body))}
	var written bytes.Buffer // one write: the connection is closed right after it
	_ = response.Write(&written)
	_, _ = to.Write(written.Bytes())
}
