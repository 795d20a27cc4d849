package edge

import (
	"cmp"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Limits bound what callers that do not pay may use. A zero field has the value of DefaultLimits.
type Limits struct {
	// Unpaid calls. A paid call takes no token.
	Address Rate // of a client address: an IPv4 address, or the /64 of an IPv6 address
	Account Rate
	Wallet  Rate // of a wallet at one client address

	WrongTANs int // of a wallet, and of a client address, in ten minutes

	Connections           int // open at a time
	ConnectionsPerAddress int

	// TrustedProxies may set X-Forwarded-For, and have no limit of connections.
	TrustedProxies []netip.Prefix
}

// Rate is a token bucket.
type Rate struct {
	PerSecond float64
	Burst     int
}

// DefaultLimits are for the open Internet. Many agents may share an address, so its burst allows a thousand concurrent
// calls that each asked for the price first. An account or wallet belongs to one agent.
func DefaultLimits() Limits {
	return Limits{
		Address: Rate{PerSecond: 100, Burst: 1000}, Account: Rate{PerSecond: 20, Burst: 200}, Wallet: Rate{PerSecond: 20, Burst: 200},
		WrongTANs: 5, Connections: 4096, ConnectionsPerAddress: 1024,
	}
}

// WithDefaults returns the limits with the default of each zero field.
func (l Limits) WithDefaults() Limits {
	defaults := DefaultLimits()
	l.Address = cmp.Or(l.Address, defaults.Address)
	l.Account = cmp.Or(l.Account, defaults.Account)
	l.Wallet = cmp.Or(l.Wallet, defaults.Wallet)
	l.WrongTANs = cmp.Or(l.WrongTANs, defaults.WrongTANs)
	l.Connections = cmp.Or(l.Connections, defaults.Connections)
	l.ConnectionsPerAddress = cmp.Or(l.ConnectionsPerAddress, min(defaults.ConnectionsPerAddress, l.Connections))
	return l
}

// clientAddress returns the network of the client: of the connection, or, behind trusted proxies, of the last entry in
// X-Forwarded-For that is not a trusted proxy. Earlier entries are not reliable, because the client can write them.
func (l Limits) clientAddress(r *http.Request) netip.Prefix {
	address := parseAddress(r.RemoteAddr)
	if !l.trusts(address) {
		return network(address)
	}
	for _, line := range slices.Backward(r.Header.Values("X-Forwarded-For")) {
		for line != "" {
			comma := strings.LastIndexByte(line, ',')
			hop := parseAddress(strings.TrimSpace(line[comma+1:]))
			if !hop.IsValid() {
				return network(address) // the proxy's own, rather than what nobody vouches for
			}
			if address = hop; !l.trusts(address) {
				return network(address)
			}
			line = line[:max(comma, 0)]
		}
	}
	return network(address)
}

// perAddress is how many connections and requests an address may have.
func (l Limits) perAddress(address netip.Addr) int {
	if l.trusts(address) {
		return math.MaxInt
	}
	return l.ConnectionsPerAddress
}

func (l Limits) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(l.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// parseAddress parses an address with or without port. It returns the zero address if the text is invalid.
func parseAddress(text string) netip.Addr {
	address, _ := netip.ParseAddr(strings.Trim(text, "[]"))
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		address = withPort.Addr()
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

// WiderNetwork returns the network around a client address: the /48 of an IPv6 address, the /24 of an IPv4 address; then all.
func WiderNetwork(address netip.Prefix) netip.Prefix {
	bits := 24
	if address.Addr().Is6() {
		bits = 48
	}
	if address.Bits() <= bits {
		return netip.Prefix{}
	}
	wider, _ := address.Addr().Prefix(bits)
	return wider
}
