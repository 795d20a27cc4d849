package server

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
)

// The limits of a listener for redirects. Its callers need one connection for a moment.
const (
	redirectConnections           = 512
	redirectConnectionsPerAddress = 64
)

// NewRedirector returns an HTTP server without TLS for small responses that do not wait, such as redirects to https://, and the listener
// that it must serve. Everybody can call it, so its connections have limits of their own and short times. trusted are the addresses of
// proxies, which are not held to the limit of an address. The metrics do not count these connections.
func NewRedirector(accepting net.Listener, handler http.Handler, trusted []netip.Prefix, log *slog.Logger) (net.Listener, *http.Server) {
	all := newConnections(Limits{Connections: redirectConnections, ConnectionsPerAddress: redirectConnectionsPerAddress, TrustedProxies: trusted})
	return listener{accepting, all}, &http.Server{
		Handler:        handler,
		ReadTimeout:    headerTimeout, // of headers and body: the body of a redirected request is not used
		WriteTimeout:   headerTimeout,
		IdleTimeout:    headerTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ConnState:      all.observe,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
