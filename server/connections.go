package server

import (
	"container/list"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/parley-chat/parley/gen"
)

const (
	maxHeaderBytes = 64 << 10         // of all headers of a request; net/http answers 431 above it
	maxHeaderLines = 200              // of them; a short line takes a hundred times its bytes in memory
	maxHeldBytes   = 16 << 20         // of all headers that are not complete, beside the first of each connection's
	freeBytes      = 4 << 10          // first ones: net/http has a buffer of this size for each anyway
	headerTimeout  = 5 * time.Second  // to send them
	requestTimeout = 10 * time.Second // to send the body as well
	idleTimeout    = 30 * time.Second // between requests
	refusalTimeout = time.Second      // to take the answer that there is no room
	refusalsAtOnce = 64               // further ones are closed without an answer
)

// connections bounds the open connections, of all callers and of each. Where there is no room, a newcomer takes the place
// of the connection that has waited longest for a request, of the same address or of all; connections with a request are
// left alone. So who holds connections open keeps nobody out, and an honest caller loses at most an idle one.
type connections struct {
	limits Limits

	mu        sync.Mutex
	open      int
	held      int       // bytes of headers that are not complete
	waiting   list.List // of *connection: without a complete request, longest first
	addresses map[netip.Prefix]*addressConnections

	refusing           chan struct{}
	refused, displaced prometheus.Counter
}

type addressConnections struct {
	open    int
	waiting list.List
}

func newConnections(limits Limits) *connections {
	return &connections{
		limits: limits, addresses: map[netip.Prefix]*addressConnections{}, refusing: make(chan struct{}, refusalsAtOnce),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_refused_total",
			Help: "Connections that were refused because all others were at work."}),
		displaced: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_displaced_total",
			Help: "Connections without a request that were closed to make room."}),
	}
}

// collectors are the metrics of the connections.
func (l *connections) collectors() []prometheus.Collector {
	return []prometheus.Collector{l.refused, l.displaced,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_connections_open", Help: "Open connections."}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.open)
		})}
}

// connection is one that has its place.
type connection struct {
	net.Conn
	all     *connections
	address netip.Prefix
	of      *addressConnections
	closed  bool
	held    int // counted in all.held

	inAll, inAddress *list.Element // nil while it has a request

	headers headerCount // of the reading goroutine
}

// headerCount follows the headers of a request while they come in.
type headerCount struct {
	complete         bool
	bytes, lines, at int // at: the bytes of the last line
}

// count takes further bytes of the request, up to the empty line that ends its headers.
func (h *headerCount) count(read []byte) {
	for _, b := range read {
		switch {
		case h.complete:
			return
		case b == '\n':
			h.complete = h.at == 0
			h.lines++
			h.at = 0
		case b != '\r':
			h.at++
		}
		h.bytes++
	}
}

// errTooManyHeaders ends the connection after the answer was written; net/http takes it for the caller's hanging up.
var errTooManyHeaders = fmt.Errorf("too many headers: %w", io.EOF)

// Read counts the headers as they come in: net/http bounds their bytes, not their lines, and not those of all connections.
func (c *connection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if c.headers.complete {
		return n, err
	}
	c.headers.count(to[:n])
	switch {
	case c.headers.complete:
	case c.headers.lines > maxHeaderLines:
		c.all.refused.Inc()
		writeRefusal(c.Conn, http.StatusRequestHeaderFieldsTooLarge, gen.ErrorCodeInvalidRequest, fmt.Sprintf("a request may have at most %d headers", maxHeaderLines))
		_ = c.CloseWrite()
		return 0, errTooManyHeaders
	case c.headers.bytes > freeBytes:
		c.all.hold(c, c.headers.bytes-freeBytes)
	}
	return n, err
}

// hold notes how many bytes of headers the connection holds. Where all together hold too many, the one that has waited
// longest with some is closed.
func (l *connections) hold(c *connection, bytes int) {
	l.mu.Lock()
	if !c.closed {
		l.held += bytes - c.held
		c.held = bytes
	}
	var displaced *connection
	for e := l.waiting.Front(); e != nil && l.held > maxHeldBytes; e = e.Next() {
		if longest := e.Value.(*connection); longest.held > 0 {
			longest.forget()
			displaced = longest
			break
		}
	}
	l.mu.Unlock()
	if displaced != nil {
		l.displaced.Inc()
		_ = displaced.Conn.Close()
	}
}

// release frees what hold noted. The lock is held.
func (c *connection) release() {
	c.all.held -= c.held
	c.held = 0
}

// listener accepts connections for which there is room.
type listener struct {
	net.Listener
	connections *connections
}

func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := l.connections.admit(conn); admitted != nil {
			return admitted, nil
		}
		l.connections.refuse(conn)
	}
}

// admit gives the connection a place, or returns nil.
func (l *connections) admit(conn net.Conn) *connection {
	address := parseAddress(conn.RemoteAddr().String())
	c := &connection{Conn: conn, all: l, address: network(address)}
	var displaced *connection
	defer func() {
		if displaced != nil {
			l.displaced.Inc()
			_ = displaced.Conn.Close()
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.of = l.addresses[c.address]; c.of == nil {
		c.of = &addressConnections{}
	}
	queue := (*list.List)(nil) // whose longest waiting connection must go
	switch {
	case c.of.open >= l.limits.ConnectionsPerAddress && !l.limits.trusts(address):
		queue = &c.of.waiting
	case l.open >= l.limits.Connections:
		queue = &l.waiting
	}
	if queue != nil {
		if queue.Len() == 0 {
			return nil
		}
		displaced = queue.Front().Value.(*connection)
		displaced.forget()
	}
	l.open++
	c.of.open++
	l.addresses[c.address] = c.of
	c.wait()
	return c
}

// wait puts the connection behind all that wait for a request. The lock is held.
func (c *connection) wait() {
	if c.inAll == nil && !c.closed {
		c.inAll, c.inAddress = c.all.waiting.PushBack(c), c.of.waiting.PushBack(c)
	}
}

// work takes it out of those that wait. The lock is held.
func (c *connection) work() {
	if c.inAll != nil {
		c.all.waiting.Remove(c.inAll)
		c.of.waiting.Remove(c.inAddress)
		c.inAll, c.inAddress = nil, nil
	}
}

// forget frees the connection's place. The lock is held.
func (c *connection) forget() {
	if c.closed {
		return
	}
	c.work()
	c.release()
	c.closed = true
	c.all.open--
	if c.of.open--; c.of.open == 0 {
		delete(c.all.addresses, c.address)
	}
}

func (c *connection) Close() error {
	c.all.mu.Lock()
	c.forget()
	c.all.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http end a connection so that its last answer arrives.
func (c *connection) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// observe follows the connection's state: net/http tells it.
func (l *connections) observe(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive: // its headers are complete
		c.work()
		c.release()
	case http.StateIdle:
		c.headers = headerCount{}
		c.wait()
	}
}

// refuse tells a caller that there is no room, and does not wait for it long.
func (l *connections) refuse(conn net.Conn) {
	l.refused.Inc()
	select {
	case l.refusing <- struct{}{}:
	default:
		_ = conn.Close()
		return
	}
	go func() {
		defer func() { _ = conn.Close(); <-l.refusing }()
		_ = conn.SetDeadline(time.Now().Add(refusalTimeout))
		writeRefusal(conn, http.StatusServiceUnavailable, gen.ErrorCodeUnavailable,
			"too many connections are open: wait as long as Retry-After says, then send the same request")
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // what the caller sends meanwhile must not make the system throw the answer away
			_, _ = io.CopyN(io.Discard, conn, maxHeaderBytes)
		}
	}()
}

// writeRefusal answers without net/http. Nobody is left to tell where that fails.
func writeRefusal(to io.Writer, status int, code gen.ErrorCode, message string) {
	body := errorBody{Message: message, Code: code, RequestID: newRequestID()}
	raw := body.encode()
	fmt.Fprintf(to, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(raw), body.RequestID, raw)
}
