package server

import (
	"cmp"
	"container/list"
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

func (l Limits) withDefaults() Limits {
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

// widerNetwork returns the network around a client address: the /48 of an IPv6 address, the /24 of an IPv4 address; then all.
func widerNetwork(address netip.Prefix) netip.Prefix {
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

// budget limits something that all callers share: connections, requests, or bytes. It knows the shares of each address. When it runs out,
// the address that holds most loses the share that has waited for longest. So an address that takes much harms itself first. The caller of
// all methods holds a lock.
type budget struct {
	most    int // shares, or the size of all
	spared  int // an address that holds so much at most loses nothing when the size is too large
	shares  int
	size    int // of all shares
	holders map[netip.Prefix]*holder
	order   []*holder // with a share that waits, see place
	put     uint64    // how many shares began to wait
}

// holder is an address that holds shares.
type holder struct {
	address netip.Prefix
	shares  int
	size    int       // of all shares
	waiting list.List // of *share: those that can be displaced, longest first
}

// share is held by an owner. The zero share is held by nobody.
type share struct {
	owner  interface{ displace() }
	of     *holder
	size   int
	number uint64        // in the order of waiting
	queued *list.Element // nil while it cannot be displaced
}

func newBudget(most, spared int) budget {
	return budget{most: most, spared: spared, holders: map[netip.Prefix]*holder{}}
}

// room makes room for a further share of an address, which may hold as many as perAddress. It returns false if nothing waits that could be
// displaced.
func (b *budget) room(address netip.Prefix, perAddress int) bool {
	h := b.holders[address]
	if h == nil || h.shares < perAddress {
		if b.shares < b.most {
			return true
		}
		h = b.largest()
	}
	if h == nil || h.waiting.Len() == 0 {
		return false
	}
	h.oldest().owner.displace()
	return true
}

// hold sets the size of a share and displaces others while the size of all is too large. A new share can be displaced; one without size is
// dropped.
func (b *budget) hold(s *share, address netip.Prefix, size int) {
	switch {
	case size == 0:
		b.drop(s)
		return
	case s.of == nil:
		if b.holders[address] == nil {
			b.holders[address] = &holder{address: address}
		}
		s.of = b.holders[address]
		s.of.shares++
		b.shares++
		b.set(s, size, true)
	default:
		b.set(s, size, s.queued != nil)
	}
	for b.size > b.most {
		h := b.largest()
		if h == nil || h.size <= b.spared {
			return
		}
		h.oldest().owner.displace()
	}
}

// drop removes a share.
func (b *budget) drop(s *share) {
	if s.of == nil {
		return
	}
	b.set(s, 0, false)
	b.shares--
	if s.of.shares--; s.of.shares == 0 {
		delete(b.holders, s.of.address)
	}
	*s = share{owner: s.owner}
}

// set sets the size of a share, unless nobody holds it, and whether it waits and can be displaced.
func (b *budget) set(s *share, size int, waits bool) {
	h := s.of
	if h == nil {
		return
	}
	if i, ok := b.place(h); ok {
		b.order = slices.Delete(b.order, i, i+1)
	}
	switch {
	case waits && s.queued == nil:
		b.put++
		s.number, s.queued = b.put, h.waiting.PushBack(s)
	case !waits && s.queued != nil:
		h.waiting.Remove(s.queued)
		s.queued = nil
	}
	by := size - s.size
	s.size, h.size, b.size = size, h.size+by, b.size+by
	if i, _ := b.place(h); h.waiting.Len() > 0 {
		b.order = slices.Insert(b.order, i, h)
	}
}

// place returns the place of a holder in the order: the largest first, and of equal ones the one with the share that has waited for
// longest.
func (b *budget) place(h *holder) (place int, there bool) {
	if h.waiting.Len() == 0 {
		return 0, false
	}
	return slices.BinarySearchFunc(b.order, h, func(a, b *holder) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.oldest().number, b.oldest().number))
	})
}

// held returns how many shares an address holds.
func (b *budget) held(address netip.Prefix) int {
	if h := b.holders[address]; h != nil {
		return h.shares
	}
	return 0
}

// largest returns the first holder in the order; nil if there is none.
func (b *budget) largest() *holder {
	if len(b.order) == 0 {
		return nil
	}
	return b.order[0]
}

// oldest returns the share that has waited for longest.
func (h *holder) oldest() *share { return h.waiting.Front().Value.(*share) }
