package server

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientAddress returns the network of the client: of the connection, or, behind trusted proxies, of the last entry in
// X-Forwarded-For that is not a trusted proxy. Earlier entries are not reliable, because the client can write them.
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

// parseAddress parses an address with or without port. It returns the zero address if the text is invalid.
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

// network returns the prefix that counts as one client: an IPv4 address, or an IPv6 /64, which one customer usually has
// as a whole. Connections without an address share one prefix.
func network(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, _ := address.Prefix(bits)
	return prefix
}
