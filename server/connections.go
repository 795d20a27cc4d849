package server

import (
	"container/list"
	"crypto/tls"
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
	headerTimeout  = 5 * time.Second  // to send them
	requestTimeout = 10 * time.Second // to send the body as well
	idleTimeout    = 30 * time.Second // between requests
	refusalTimeout = time.Second      // to read the response
	refusalsAtOnce = 64               // further connections are closed without a response
)

// connections bounds the open connections, in total and per address. When the limit is reached, a new connection
// replaces the one that has been idle for longest, of the same address or of all. Connections with a request in
// progress stay. So a caller that holds connections open locks nobody out, and an honest caller loses an idle
// connection at most.
type connections struct {
	limits    Limits
	encrypted bool // by TLS: what is written without a handshake means nothing

	mu        sync.Mutex
	open      int
	held      int       // bytes of headers that are not complete
	waiting   list.List // of *connection: without a complete request, longest first
	addresses map[netip.Prefix]*addressConnections
	running   int // requests, if the connections are encrypted
	requests  map[netip.Prefix]int

	refusing           chan struct{}
	refused, displaced prometheus.Counter
}

type addressConnections struct {
	open    int
	waiting list.List
}

func newConnections(limits Limits) *connections {
	return &connections{
		limits: limits, addresses: map[netip.Prefix]*addressConnections{}, requests: map[netip.Prefix]int{}, refusing: make(chan struct{}, refusalsAtOnce),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_refused_total",
			Help: "Connections and requests that were refused because all others were at work."}),
		displaced: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_displaced_total",
			Help: "Connections without a request that were closed to make room."}),
	}
}

// collectors are the metrics of the connections.
func (l *connections) collectors() []prometheus.Collector {
	limit := prometheus.NewGauge(prometheus.GaugeOpts{Name: "parley_connections_max", Help: "The most open connections."})
	limit.Set(float64(l.limits.Connections))
	return []prometheus.Collector{l.refused, l.displaced, limit,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_connections_open", Help: "Open connections."}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.open)
		})}
}

// connection is an admitted connection.
type connection struct {
	net.Conn
	all     *connections
	address netip.Prefix
	of      *addressConnections
	closed  bool
	held    int // counted in all.held

	inAll, inAddress *list.Element // nil while it has a request

	counting sync.Mutex // with HTTP/2 the state changes while another goroutine reads
	headers  headerCount
}

// admittedBelow returns the connection below what net/http serves.
func admittedBelow(conn net.Conn) *connection {
	switch conn := conn.(type) {
	case *connection:
		return conn
	case *secureConnection:
		return conn.on
	case *tls.Conn:
		below, _ := conn.NetConn().(*connection)
		return below
	}
	return nil
}

// listener accepts connections up to the limit.
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

// admit admits the connection, or returns nil.
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
	c.idle()
	return c
}

// idle moves the connection to the end of the idle list. The caller holds the lock.
func (c *connection) idle() {
	if c.inAll == nil && !c.closed {
		c.inAll, c.inAddress = c.all.waiting.PushBack(c), c.of.waiting.PushBack(c)
	}
}

// busy removes the connection from the idle list. The caller holds the lock.
func (c *connection) busy() {
	if c.inAll != nil {
		c.all.waiting.Remove(c.inAll)
		c.of.waiting.Remove(c.inAddress)
		c.inAll, c.inAddress = nil, nil
	}
}

// forget removes the connection. The caller holds the lock.
func (c *connection) forget() {
	if c.closed {
		return
	}
	c.busy()
	c.dropHeaders()
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

// CloseWrite lets net/http close a connection without losing the last response.
func (c *connection) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(conn net.Conn) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok { // TCP and TLS
		return half.CloseWrite()
	}
	return nil
}

// observe tracks the state of the connection, as net/http reports it.
func (l *connections) observe(conn net.Conn, state http.ConnState) {
	c := admittedBelow(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive: // its headers are complete
		c.busy()
		c.dropHeaders()
		c.count(headerCount{complete: true})
	case http.StateIdle:
		c.count(headerCount{})
		c.idle()
	}
}

// restart begins to count anew, after a handshake.
func (l *connections) restart(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.count(headerCount{})
	c.dropHeaders()
}

// count sets what is counted of the request.
func (c *connection) count(headers headerCount) {
	c.counting.Lock()
	c.headers = headers
	c.counting.Unlock()
}

// refuse returns 503 and closes the connection after a short time.
func (l *connections) refuse(conn net.Conn) {
	l.refused.Inc()
	if l.encrypted { // a handshake would cost more than the response saves
		_ = conn.Close()
		return
	}
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
			"too many connections are open; wait for Retry-After seconds, then send the same request")
		if closeWrite(conn) == nil { // data that still arrives must not make the system discard the response
			_, _ = io.CopyN(io.Discard, conn, maxHeaderBytes)
		}
	}()
}

// writeRefusal writes a response without net/http. Errors are ignored, because there is nobody to report them to.
func writeRefusal(to io.Writer, status int, code gen.ErrorCode, message string) {
	body := errorBody{Message: message, Code: code, RequestID: newRequestID()}
	raw := body.encode()
	fmt.Fprintf(to, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"X-Content-Type-Options: nosniff\r\nX-Request-Id: %s\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(raw), body.RequestID, raw)
}
