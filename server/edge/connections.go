// Package edge bounds what a stranger may cost: connections, unfinished requests, headers, bodies, unpaid calls. It knows HTTP and client
// addresses. The server tells it how long a body may be, whether a call was paid, and what its callers are.
package edge

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	headerTimeout  = 5 * time.Second  // to send them
	requestTimeout = 10 * time.Second // to send the body as well
	idleTimeout    = 30 * time.Second // between requests
	refusalTimeout = time.Second      // to read the response
	refusalsAtOnce = 64               // further connections are closed without a response

	maxHeaderBytes = 32 << 10 // of all headers of a request; net/http returns 431 above it
	maxHeaderLines = 200      // of them; a short line takes a hundred times its bytes in memory
	freeBytes      = 4 << 10  // of headers that are not complete do not count: net/http has a buffer of this size for each connection anyway
	bufferedLines  = freeBytes / len("a:\n")

	maxHeldBytes = 16 << 20 // of headers and bodies, for all callers who have not paid
	alwaysHeld   = 16 << 10 // of an address, even beyond maxHeldBytes: a small request is never displaced for its bytes
	maxSentBytes = 32 << 20 // of responses of paid calls that their callers are reading
)

// Connections bounds what is held for callers who have not paid: open connections, requests, and the bytes of their headers and bodies.
// What waits for its caller can be displaced: a connection without a complete request, and a request whose body is not complete. At a
// limit of an address, a newcomer displaces what has waited for longest at that address; at a limit of all, what has waited for longest
// at the address that holds most. What is at work stays, and no address has more at work than it leaves free. So a caller that holds much
// locks nobody out.
type Connections struct {
	limits       Limits
	responseTime time.Duration
	refusal      Refusal
	encrypted    bool // by TLS: what is written without a handshake means nothing

	mu       sync.Mutex
	open     Budget     // connections; those without a complete request wait and have size 1, others 0
	requests Budget     // requests; those whose body or response is not complete wait and have size 1, others 0
	memory   Budget     // bytes of headers and bodies
	sent     Budget     // bytes of responses of paid calls
	closing  []net.Conn // displaced; unlock closes them

	refusing           chan struct{}
	refused, displaced prometheus.Counter
}

// Refusal returns the response to a request that is refused before it is read: its header fields and its body.
type Refusal func(status int, message string) (http.Header, []byte)

// New returns the connections of a server. responseTime is how long a response may take at most, from the beginning of its request.
func New(limits Limits, responseTime time.Duration, refusal Refusal) *Connections {
	return &Connections{
		limits: limits, responseTime: responseTime, refusal: refusal,
		open: NewBudget(limits.Connections, 0), requests: NewBudget(limits.Connections, 0),
		memory: NewBudget(maxHeldBytes, alwaysHeld), sent: NewBudget(maxSentBytes, 0),
		refusing: make(chan struct{}, refusalsAtOnce),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_refused_total",
			Help: "Connections and requests that were refused because all others were at work."}),
		displaced: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_displaced_total",
			Help: "Connections and requests that waited for their callers and were ended to make room."}),
	}
}

// Collectors are the metrics of the connections.
func (l *Connections) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.refused, l.displaced,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_connections_max", Help: "The most open connections."},
			func() float64 { return float64(l.limits.Connections) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "parley_connections_open", Help: "Open connections."}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return float64(l.open.Shares)
		})}
}

// unlock unlocks, and then closes what was displaced.
func (l *Connections) unlock() {
	closing := l.closing
	l.closing = nil
	l.mu.Unlock()
	for _, conn := range closing {
		_ = conn.Close()
	}
}

// connection is an admitted connection.
type connection struct {
	net.Conn
	all     *Connections
	address netip.Prefix
	working int   // requests at work
	place   Share // of all.open; without a holder when the connection is closed
	bytes   Share // of all.memory: headers that are not complete

	counting sync.Mutex // with HTTP/2 the state changes while another goroutine reads; locked before all.mu
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
	connections *Connections
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
func (l *Connections) admit(conn net.Conn) *connection {
	address := parseAddress(conn.RemoteAddr().String())
	c := &connection{Conn: conn, all: l, address: network(address)}
	c.place.Owner, c.bytes.Owner = c, c
	l.mu.Lock()
	defer l.unlock()
	if !l.open.MakeRoom(c.address, l.limits.perAddress(address)) {
		return nil
	}
	l.open.Hold(&c.place, c.address, 1)
	return c
}

// Displace closes a connection that waits for its caller. The caller holds the lock.
func (c *connection) Displace() {
	c.all.displaced.Inc()
	c.forget()
	c.all.closing = append(c.all.closing, c.Conn)
}

// forget removes the connection. The caller holds the lock.
func (c *connection) forget() {
	c.all.open.Drop(&c.place)
	c.all.memory.Drop(&c.bytes)
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

// work adds requests at work; without any the connection waits for its caller. The caller holds the lock.
func (c *connection) work(by int) {
	if c == nil { // in tests
		return
	}
	if c.working += by; c.working > 0 {
		c.all.open.set(&c.place, 0, false)
	} else {
		c.all.open.set(&c.place, 1, true)
	}
}

// observe tracks the state of the connection, as net/http reports it.
func (l *Connections) observe(conn net.Conn, state http.ConnState) {
	c := admittedBelow(conn)
	switch {
	case c == nil:
	case state == http.StateActive: // its headers are complete; begin counts them
		c.count(func(h *headerCount) { h.complete = true })
	case state == http.StateIdle:
		c.count((*headerCount).next)
	}
}

// headerCount counts the headers of a request as they arrive.
type headerCount struct {
	complete         bool
	bytes, lines, at int // at: the bytes of the last line
	after            int // lines that were read behind the headers: the body, or the next request
	buffered         int // lines that were read with the request before, and may be headers of this one
}

// next begins to count the next request of the connection.
func (h *headerCount) next() { *h = headerCount{buffered: h.after} }

// held is how many bytes of memory unfinished headers take.
func (h *headerCount) held() int {
	if h.complete {
		return 0
	}
	return max(0, h.bytes-freeBytes) + h.buffered*perHeader
}

// read counts further lines of the request, up to the empty line that ends its headers. It returns how many bytes belong to them.
func (h *headerCount) read(read []byte) int {
	for i, b := range read {
		switch {
		case h.complete:
			h.after = min(h.after+bytes.Count(read[i:], []byte("\n")), bufferedLines)
			return i
		case b == '\n':
			h.complete = h.at == 0
			h.lines++
			h.at = 0
		case b != '\r':
			h.at++
		}
	}
	return len(read)
}

// count changes what is counted of the request, and records how many bytes of memory its unfinished headers take.
func (c *connection) count(change func(h *headerCount)) headerCount {
	c.counting.Lock()
	defer c.counting.Unlock()
	before := c.headers.held()
	change(&c.headers)
	if held := c.headers.held(); held != before {
		c.all.mu.Lock()
		defer c.all.unlock()
		if c.place.of != nil {
			c.all.memory.Hold(&c.bytes, c.address, held)
		}
	}
	return c.headers
}

// errTooManyHeaders ends the connection after the response was written. net/http treats it like a disconnect.
var errTooManyHeaders = fmt.Errorf("too many headers: %w", io.EOF)

// Read counts the headers as they arrive. net/http bounds their bytes, but neither their number nor
// the bytes of all connections together. Encrypted bytes count until the headers are complete, whatever they contain.
func (c *connection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	if !c.all.encrypted {
		return c.readHeaders(c.Conn, to[:n], err)
	}
	c.count(func(h *headerCount) { h.bytes += n })
	return n, err
}

// readHeaders counts what was read of a request in plain text, and returns the result of the read. If there are too many headers it
// writes a response to the caller.
func (c *connection) readHeaders(caller net.Conn, read []byte, err error) (int, error) {
	counted := c.count(func(h *headerCount) {
		if n := h.read(read); !c.all.encrypted {
			h.bytes += n
		}
	})
	if counted.complete || counted.lines <= maxHeaderLines {
		return len(read), err
	}
	c.all.refused.Inc()
	c.all.writeRefusal(caller, http.StatusRequestHeaderFieldsTooLarge, tooManyHeaders)
	_ = closeWrite(caller)
	return 0, errTooManyHeaders
}

// refuse returns 503 and closes the connection after a short time.
func (l *Connections) refuse(conn net.Conn) {
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
		l.writeRefusal(conn, http.StatusServiceUnavailable,
			"too many connections are open; wait for Retry-After seconds, then send the same request")
		if closeWrite(conn) == nil { // data that still arrives must not make the system discard the response
			_, _ = io.CopyN(io.Discard, conn, maxHeaderBytes)
		}
	}()
}
