package server

import (
	"cmp"
	"container/heap"
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
// all methods holds the lock of the connections.
type budget struct {
	most    int // shares, or the size of all
	spared  int // an address that holds so much at most loses nothing when the size is too large
	shares  int
	size    int // of all shares
	holders map[netip.Prefix]*holder
	order   holderHeap // holders with a share that waits
	put     uint64     // how many shares began to wait
}

// holder is an address that holds shares.
type holder struct {
	address netip.Prefix
	shares  int
	size    int       // of all shares
	waiting list.List // of *share: those that can be displaced, longest first
	index   int       // in the order; -1 if none waits
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
		h := b.holders[address]
		if h == nil {
			h = &holder{address: address, index: -1}
			b.holders[address] = h
		}
		s.of = h
		h.shares++
		b.shares++
		b.wait(s, size)
	default:
		b.resize(s, size)
	}
	for b.size > b.most {
		h := b.largest()
		if h == nil || h.size <= b.spared {
			return
		}
		h.oldest().owner.displace()
	}
}

// wait lets a share be displaced, after those that wait already.
func (b *budget) wait(s *share, size int) {
	b.put++
	s.number, s.queued = b.put, s.of.waiting.PushBack(s)
	b.resize(s, size)
}

// keep makes a share one that cannot be displaced.
func (b *budget) keep(s *share, size int) {
	if s.of == nil {
		return
	}
	if s.queued != nil {
		s.of.waiting.Remove(s.queued)
		s.queued = nil
	}
	b.resize(s, size)
}

// drop removes a share.
func (b *budget) drop(s *share) {
	if s.of == nil {
		return
	}
	b.keep(s, 0)
	b.shares--
	if s.of.shares--; s.of.shares == 0 {
		delete(b.holders, s.of.address)
	}
	*s = share{owner: s.owner}
}

// resize sets the size of a share, and restores the order of the holders.
func (b *budget) resize(s *share, size int) {
	h, by := s.of, size-s.size
	s.size += by
	h.size += by
	b.size += by
	switch waits := h.waiting.Len() > 0; {
	case waits && h.index < 0:
		heap.Push(&b.order, h)
	case waits:
		heap.Fix(&b.order, h.index)
	case h.index >= 0:
		heap.Remove(&b.order, h.index)
	}
}

// largest returns the holder with the largest size among those that have a share to displace; nil if there is none.
func (b *budget) largest() *holder {
	if len(b.order) == 0 {
		return nil
	}
	return b.order[0]
}

// oldest returns the share that has waited for longest.
func (h *holder) oldest() *share { return h.waiting.Front().Value.(*share) }

// holderHeap has the largest holder first. Of equal ones, the one with the share that has waited for longest.
type holderHeap []*holder

func (o holderHeap) Len() int { return len(o) }

func (o holderHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(o[j].size, o[i].size), cmp.Compare(o[i].oldest().number, o[j].oldest().number)) < 0
}

func (o holderHeap) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].index, o[j].index = i, j
}

func (o *holderHeap) Push(h any) {
	h.(*holder).index = len(*o)
	*o = append(*o, h.(*holder))
}

func (o *holderHeap) Pop() any {
	last := len(*o) - 1
	h := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	h.index = -1
	return h
}
