package server

import (
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

// connections bounds what is held for callers who have not paid: open connections, requests, and the bytes of their headers and bodies.
// What waits for its caller can be displaced: a connection without a complete request, and a request whose body is not complete. At a
// limit of an address, a newcomer displaces what has waited for longest at that address; at a limit of all, what has waited for longest
// at the address that holds most. What is at work stays, and no address has more at work than it leaves free. So a caller that holds much
// locks nobody out.
type connections struct {
	limits    Limits
	encrypted bool // by TLS: what is written without a handshake means nothing

	mu        sync.Mutex
	open      int
	running   int // requests
	working   int // requests at work: complete, without a response
	held      int // bytes of headers and bodies
	sending   int // bytes of responses of paid calls
	addresses map[netip.Prefix]addressUse
	silent    shares     // connections without a complete request
	reading   shares     // requests whose body is not complete
	memory    shares     // bytes of headers and bodies
	sent      shares     // bytes of responses of paid calls
	closing   []net.Conn // displaced; unlock closes them

	refusing           chan struct{}
	refused, displaced prometheus.Counter
}

// addressUse counts what an address has open, whether it waits or not, and its requests at work.
type addressUse struct{ connections, requests, working int }

func newConnections(limits Limits) *connections {
	return &connections{
		limits: limits, addresses: map[netip.Prefix]addressUse{}, silent: newShares(), reading: newShares(), memory: newShares(), sent: newShares(),
		refusing: make(chan struct{}, refusalsAtOnce),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_refused_total",
			Help: "Connections and requests that were refused because all others were at work."}),
		displaced: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_connections_displaced_total",
			Help: "Connections and requests that waited for their callers and were ended to make room."}),
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
	all      *connections
	address  netip.Prefix
	closed   bool
	complete int   // requests at work
	place    share // of all.silent
	bytes    share // of all.memory: headers that are not complete

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

// unlock unlocks, and then closes what was displaced.
func (l *connections) unlock() {
	closing := l.closing
	l.closing = nil
	l.mu.Unlock()
	for _, conn := range closing {
		_ = conn.Close()
	}
}

// count changes the counts of an address and of all.
func (l *connections) count(address netip.Prefix, by addressUse) {
	l.open += by.connections
	l.running += by.requests
	l.working += by.working
	use := l.addresses[address]
	use.connections += by.connections
	use.requests += by.requests
	use.working += by.working
	l.addresses[address] = use
	if use == (addressUse{}) {
		delete(l.addresses, address)
	}
}

// makeRoom makes room for one more, at an address that is full or where so many are there in all. It returns false if nothing waits that
// could be displaced.
func (l *connections) makeRoom(waiting *shares, ofAddress bool, address netip.Prefix, inAll int) bool {
	var from *holder
	switch {
	case ofAddress:
		from = waiting.holders[address]
	case inAll >= l.limits.Connections:
		from = waiting.largest()
	default:
		return true
	}
	if from.oldest() == nil {
		return false
	}
	from.oldest().owner.displace()
	return true
}

// admit admits the connection, or returns nil.
func (l *connections) admit(conn net.Conn) *connection {
	address := parseAddress(conn.RemoteAddr().String())
	c := &connection{Conn: conn, all: l, address: network(address)}
	c.place.owner, c.bytes.owner = c, c
	l.mu.Lock()
	defer l.unlock()
	full := l.addresses[c.address].connections >= l.limits.ConnectionsPerAddress && !l.limits.trusts(address)
	if !l.makeRoom(&l.silent, full, c.address, l.open) {
		return nil
	}
	l.count(c.address, addressUse{connections: 1})
	l.silent.wait(&c.place, c.address, 1)
	return c
}

// displace closes a connection that waits for its caller. The caller holds the lock.
func (c *connection) displace() {
	c.all.displaced.Inc()
	c.forget()
	c.all.closing = append(c.all.closing, c.Conn)
}

// forget removes the connection. The caller holds the lock.
func (c *connection) forget() {
	if c.closed {
		return
	}
	c.closed = true
	c.all.silent.drop(&c.place)
	c.dropHeaders()
	c.all.count(c.address, addressUse{connections: -1})
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
	switch state {
	case http.StateActive: // its headers are complete; begin counts them
		c.count(func(headers headerCount) headerCount { headers.complete = true; return headers })
	case http.StateIdle:
		c.count(headerCount.next)
	}
}

// count changes what is counted of the request.
func (c *connection) count(change func(headerCount) headerCount) {
	c.counting.Lock()
	c.headers = change(c.headers)
	held := c.headers.held()
	c.counting.Unlock()
	c.all.holdHeaders(c, held)
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
