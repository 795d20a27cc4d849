package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TLS says how connections are encrypted.
type TLS struct {
	// Config is for the server. Its NextProtos say whether HTTP/2 is offered.
	Config *tls.Config
	// Expires returns when the certificate that is in use expires, or the zero time if there is none.
	Expires func() time.Time
}

// Collectors is the metric of the certificate.
func (t *TLS) Collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	described := prometheus.GaugeOpts{Name: "parley_tls_certificate_expires_seconds",
		Help: "Time until the TLS certificate in use expires; 0 if there is none."}
	return []prometheus.Collector{prometheus.NewGaugeFunc(described, func() float64 {
		if expires := t.Expires(); !expires.IsZero() {
			return time.Until(expires).Seconds()
		}
		return 0
	})}
}

// secureListener makes handshakes on admitted connections. So the limits of connections hold before any cryptography, and a slow
// handshake holds up nobody: it has as much time as the headers of a request, and its bytes count like theirs.
//
// For HTTP/1.1 it returns connections whose headers are counted after decryption. For HTTP/2 it returns what net/http needs, a
// *tls.Conn. There net/http itself limits bytes, and Admit the number of headers.
type secureListener struct {
	listener
	config  *tls.Config
	secured chan net.Conn
	failed  chan error
	closed  chan struct{}
	close   sync.Once
}

func newSecureListener(limited listener, config *tls.Config) *secureListener {
	limited.connections.encrypted = true
	l := &secureListener{listener: limited, config: config, secured: make(chan net.Conn), failed: make(chan error),
		closed: make(chan struct{})}
	go l.run()
	return l
}

func (l *secureListener) run() {
	for {
		conn, err := l.listener.Accept()
		if err == nil {
			go l.handshake(conn.(*connection))
			continue
		}
		select {
		case l.failed <- err: // net/http waits a little before it accepts again
		case <-l.closed:
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func (l *secureListener) handshake(conn *connection) {
	ctx, cancel := context.WithTimeout(context.Background(), headerTimeout)
	defer cancel()
	encrypted := tls.Server(conn, l.config)
	if encrypted.HandshakeContext(ctx) != nil {
		_ = conn.Close()
		return
	}
	ready := net.Conn(encrypted)
	switch encrypted.ConnectionState().NegotiatedProtocol {
	case "h2":
	case "", "http/1.1":
		ready = &secureConnection{encrypted, conn}
	default: // an ACME server wanted to see a certificate
		_ = conn.Close()
		return
	}
	conn.count((*headerCount).next)
	select {
	case l.secured <- ready:
	case <-l.closed:
		_ = conn.Close()
	}
}

func (l *secureListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.secured:
		return conn, nil
	case err := <-l.failed:
		return nil, err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *secureListener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.listener.Close()
}

// secureConnection is a connection with HTTP/1.1 after its handshake.
type secureConnection struct {
	*tls.Conn

	on *connection // counts the bytes
}

// Read counts the lines of headers.
func (c *secureConnection) Read(to []byte) (int, error) {
	n, err := c.Conn.Read(to)
	return c.on.readHeaders(c.Conn, to[:n], err)
}
