package server

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientAddress is the address that a request came from, as far as it can be known: that of the connection, or, where
// that is a trusted proxy's, the last one in X-Forwarded-For that is not. What stands before it the caller wrote.
func (s *Server) clientAddress(r *http.Request) netip.Prefix {
	address := parseAddress(r.RemoteAddr)
	if !s.config.Limits.trusts(address) {
		return network(address)
	}
	for _, line := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
		for line != "" {
			comma := strings.LastIndexByte(line, ',')
			hop := parseAddress(strings.TrimSpace(line[comma+1:]))
			if !hop.IsValid() {
				return network(address) // the proxy's own, rather than what nobody vouches for
			}
			if address = hop; !s.config.Limits.trusts(address) {
				return network(address)
			}
			line = line[:max(comma, 0)]
		}
	}
	return network(address)
}

func (l Limits) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// parseAddress reads an address with or without port, as connections and proxies write it; what is none is invalid.
func parseAddress(text string) netip.Addr {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap().WithZone("")
	}
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

// network is who counts as one caller: an IPv4 address, or the /64 of IPv6, of which one customer has all addresses.
// Connections without an address share one.
func network(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}
