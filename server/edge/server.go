package edge

import (
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
)

const (
	maxStreams = 16 // requests of one connection with HTTP/2 at a time; Admit bounds the sum over all connections

	// What HTTP/2 buffers before a handler reads it: of a frame, of a request, and of a connection.
	maxFrame         = 16 << 10
	streamBuffer     = 64 << 10
	connectionBuffer = 64 << 10

	// The limits of a listener for redirects. Its callers need one connection for a moment.
	redirectConnections           = 512
	redirectConnectionsPerAddress = 64
)

// NewRedirector returns an HTTP server without TLS for small responses that do not wait, such as redirects to https://, and the listener
// that it must serve. Everybody can call it, so its connections have limits of their own and short times. trusted are the addresses of
// proxies, which are not held to the limit of an address. The metrics do not count these connections.
func NewRedirector(accepting net.Listener, handler http.Handler, trusted []netip.Prefix, refusal Refusal, log *slog.Logger,
) (net.Listener, *http.Server) {
	all := New(Limits{Connections: redirectConnections, ConnectionsPerAddress: redirectConnectionsPerAddress, TrustedProxies: trusted},
		headerTimeout, refusal)
	return listener{accepting, all}, &http.Server{
		Handler:      handler,
		ReadTimeout:  headerTimeout, // of headers and body: the body of a redirected request is not used
		WriteTimeout: headerTimeout, IdleTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnState: all.observe, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// NewServer returns the HTTP server for a handler whose middleware begins with Admit, and the listener that it must serve.
func (l *Connections) NewServer(accepting net.Listener, handler http.Handler, encryption *TLS, log *slog.Logger,
) (*http.Server, net.Listener) {
	limited := net.Listener(listener{accepting, l})
	if encryption != nil {
		limited = newSecureListener(listener{accepting, l}, encryption.Config)
	}
	return &http.Server{
		Handler: handler,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame, MaxReceiveBufferPerStream: streamBuffer,
			MaxReceiveBufferPerConnection: connectionBuffer},
		ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		WriteTimeout: l.responseTime,
		ConnContext:  withConnection, ConnState: l.observe,
		ErrorLog: stdlog.New(connectionLog{log, NewLogLimit()}, "", 0),
	}, limited
}
