package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/parley-chat/parley/gen"
)

const (
	maxHeldBytes = 16 << 20 // of headers and bodies, for all callers who have not paid
	alwaysHeld   = 16 << 10 // of an address, even beyond maxHeldBytes: a small request is never displaced for its bytes
	perHeader    = 128      // bytes that a header takes beside its name and value
	maxSentBytes = 64 << 20 // of responses of paid calls that their callers are reading

	// How long a caller may take to read a response: one that it has paid for, which may have 2 MiB, another one, and a refusal.
	paidWriteTime    = 30 * time.Second
	writeTime        = 5 * time.Second
	refusalWriteTime = time.Second
)

// request is a request in progress. It can be displaced while it waits for its caller: to send the body, and to read the response.
type request struct {
	all      *connections
	on       *connection // nil in tests
	address  netip.Prefix
	response http.ResponseWriter
	place    share // of all.reading
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

var errDisplaced = &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 1, unread: true,
	message: "the server needed the room of this unfinished request for others; wait for Retry-After seconds, then send the same request"}

// errCrowded keeps an address from having so many requests at work that others find no room.
var errCrowded = &problem{status: http.StatusServiceUnavailable, code: gen.ErrorCodeUnavailable, retryAfter: 1, unread: true,
	message: "too many requests of this address are at work; wait for Retry-After seconds, then send the same request"}

type connectionKey struct{}

// withConnection makes the connection known to its requests.
func withConnection(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, admittedBelow(conn))
}

func requestFrom(c echo.Context) *request {
	r, _ := c.Get(requestKey).(*request)
	return r
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
		writer := http.NewResponseController(c.Response().Writer)
		if lines > maxHeaderLines { // with HTTP/1.1 they were refused while they arrived
			_ = writer.SetWriteDeadline(time.Now().Add(refusalWriteTime))
			refuseRequest(c.Response(), http.StatusRequestHeaderFieldsTooLarge, gen.ErrorCodeInvalidRequest, fmt.Sprintf("a request can have at most %d headers", maxHeaderLines))
			return nil
		}
		r := s.connections.begin(c.Request(), c.Response().Writer, s.clientAddress(c.Request()), bytes)
		if r == nil {
			s.connections.refused.Inc()
			_ = writer.SetWriteDeadline(time.Now().Add(refusalWriteTime))
			c.Response().Header().Set("Retry-After", "1")
			refuseRequest(c.Response(), http.StatusServiceUnavailable, gen.ErrorCodeUnavailable,
				"too many requests are in progress; wait for Retry-After seconds, then send the same request")
			return nil
		}
		defer r.end()
		c.Set(requestKey, r)
		c.Response().Before(func() { r.respond(recordFrom(c)) })
		err := next(c)
		if c.Request().ProtoMajor > 1 {
			_ = writer.Flush() // else net/http waits for the caller after the request is forgotten here
		}
		return err
	}
}

// begin counts a request, or returns nil if there are too many.
func (l *connections) begin(r *http.Request, w http.ResponseWriter, client netip.Prefix, bytes int) *request {
	on, _ := r.Context().Value(connectionKey{}).(*connection)
	begun := &request{all: l, on: on, address: client, response: w}
	begun.place.owner, begun.bytes.owner, begun.sent.owner = begun, begun, begun
	l.mu.Lock()
	defer l.unlock()
	full := l.addresses[client].requests >= l.limits.ConnectionsPerAddress && !l.limits.trusts(client.Addr())
	if !l.makeRoom(&l.reading, full, client, l.running) {
		return nil
	}
	l.count(client, addressUse{requests: 1})
	l.reading.wait(&begun.place, client, 1)
	l.hold(&begun.bytes, client, bytes)
	return begun
}

// hold counts further bytes. If there are too many in all, the address that holds most loses what has waited for longest. The caller
// holds the lock.
func (l *connections) hold(s *share, address netip.Prefix, bytes int) {
	l.held += bytes
	if s.of == nil {
		l.memory.wait(s, address, bytes)
	} else {
		l.memory.grow(s, bytes)
	}
	for l.held > maxHeldBytes {
		largest := l.memory.largest()
		if largest == nil || largest.size <= alwaysHeld {
			return
		}
		largest.oldest().owner.displace()
	}
}

// hold counts further bytes of the body. It returns errDisplaced if the request must end.
func (r *request) hold(bytes int) error {
	r.all.mu.Lock()
	defer r.all.unlock()
	if r.state == reading && bytes > 0 {
		r.all.hold(&r.bytes, r.address, bytes)
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
	switch r.state {
	case displaced:
		return errDisplaced
	case reading:
		if r.all.crowded(r.address) {
			return errCrowded
		}
		r.state = complete
		r.all.count(r.address, addressUse{working: 1})
		r.all.reading.drop(&r.place)
		r.all.memory.keep(&r.bytes)
		if r.on != nil {
			if r.on.complete++; r.on.complete == 1 {
				r.all.silent.drop(&r.on.place)
			}
		}
	}
	return nil
}

// crowded reports whether an address has as many requests at work as there is room for further ones. Without a limit for each address it has
// none here either.
func (l *connections) crowded(address netip.Prefix) bool {
	return l.addresses[address].working >= l.limits.Connections-l.working && l.limits.ConnectionsPerAddress < l.limits.Connections &&
		!l.limits.trusts(address.Addr())
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
	_ = http.NewResponseController(r.response).SetWriteDeadline(time.Now().Add(limit))
	switch r.state {
	case displaced:
		return
	case reading: // it is rejected before its body was read
		r.state = responding
	case complete:
		r.state = responding
		r.all.count(r.address, addressUse{working: -1})
		r.all.reading.wait(&r.place, r.address, 1)
		if size := r.all.memory.drop(&r.bytes); size > 0 {
			r.all.memory.wait(&r.bytes, r.address, size)
		}
		r.leaveConnection()
	}
	if record != nil && record.responseBytes > 0 {
		r.all.send(r, record.responseBytes)
	}
}

// send counts the response of a paid call. If there are too many bytes in all, the address that holds most loses the response that has waited
// for its reader for longest: the same payment gets it again. The caller holds the lock.
func (l *connections) send(r *request, bytes int) {
	l.sending += bytes
	l.sent.wait(&r.sent, r.address, bytes)
	for l.sending > maxSentBytes {
		l.sent.largest().oldest().owner.displace()
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

// leaveConnection lets the connection wait again if none of its requests is at work. The caller holds the lock.
func (r *request) leaveConnection() {
	if r.on == nil {
		return
	}
	if r.on.complete--; r.on.complete == 0 && !r.on.closed {
		r.all.silent.wait(&r.on.place, r.on.address, 1)
	}
}

// release ends the count of its bytes: from here on the payment engine bounds what it holds.
func (r *request) release() {
	r.all.mu.Lock()
	defer r.all.unlock()
	r.all.held -= r.all.memory.drop(&r.bytes)
}

// displace makes the reading of the body, or the writing of the response, fail. The caller holds the lock, so the response still exists.
func (r *request) displace() {
	r.all.displaced.Inc()
	writes := r.state == responding
	r.forget(displaced)
	if writes {
		_ = http.NewResponseController(r.response).SetWriteDeadline(time.Unix(1, 0))
		return
	}
	_ = http.NewResponseController(r.response).SetReadDeadline(time.Unix(1, 0))
}

// end ends the request.
func (r *request) end() {
	r.all.mu.Lock()
	defer r.all.unlock()
	if r.state == complete {
		r.all.count(r.address, addressUse{working: -1})
		r.leaveConnection()
	}
	if r.state != displaced {
		r.forget(ended)
	}
}

// forget removes the request. The caller holds the lock.
func (r *request) forget(state requestState) {
	r.state = state
	r.all.reading.drop(&r.place)
	r.all.held -= r.all.memory.drop(&r.bytes)
	r.all.sending -= r.all.sent.drop(&r.sent)
	r.all.count(r.address, addressUse{requests: -1})
}

// refuseRequest writes a response before the request has an id.
func refuseRequest(w http.ResponseWriter, status int, code gen.ErrorCode, message string) {
	body := errorBody{Message: message, Code: code, RequestID: newRequestID()}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Request-Id", body.RequestID)
	w.WriteHeader(status)
	_, _ = w.Write(body.encode())
}
