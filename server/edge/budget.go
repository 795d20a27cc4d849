package edge

import (
	"cmp"
	"container/list"
	"net/netip"
	"slices"
)

// Budget limits something that all callers share: connections, requests, or bytes. It knows the shares of each address. When it runs out,
// the address that holds most loses the share that has waited for longest. So an address that takes much harms itself first. The caller of
// all methods holds a lock.
type Budget struct {
	most    int // shares, or the size of all
	spared  int // an address that holds so much at most loses nothing when the size is too large
	Shares  int
	size    int // of all shares
	holders map[netip.Prefix]*Holder
	order   []*Holder // with a share that waits, see place
	put     uint64    // how many shares began to wait
}

// Holder is an address that holds shares.
type Holder struct {
	address netip.Prefix
	Shares  int
	size    int       // of all shares
	waiting list.List // of *Share: those that can be displaced, longest first
}

// Share is held by an owner. The zero Share is held by nobody.
type Share struct {
	Owner  interface{ Displace() }
	of     *Holder
	size   int
	number uint64        // in the order of waiting
	queued *list.Element // nil while it cannot be displaced
}

// NewBudget returns a budget of so many shares, or of such a size.
func NewBudget(most, spared int) Budget {
	return Budget{most: most, spared: spared, holders: map[netip.Prefix]*Holder{}}
}

// MakeRoom makes room for a further share of an address, which may hold as many as perAddress. It returns false if nothing waits that could
// be displaced.
func (b *Budget) MakeRoom(address netip.Prefix, perAddress int) bool {
	h := b.holders[address]
	if h == nil || h.Shares < perAddress {
		if b.Shares < b.most {
			return true
		}
		h = b.Largest()
	}
	if h == nil || h.waiting.Len() == 0 {
		return false
	}
	h.Oldest().Owner.Displace()
	return true
}

// Hold sets the size of a share and displaces others while the size of all is too large. A new share can be displaced; one without size is
// dropped.
func (b *Budget) Hold(s *Share, address netip.Prefix, size int) {
	switch {
	case size == 0:
		b.Drop(s)
		return
	case s.of == nil:
		if b.holders[address] == nil {
			b.holders[address] = &Holder{address: address}
		}
		s.of = b.holders[address]
		s.of.Shares++
		b.Shares++
		b.set(s, size, true)
	default:
		b.set(s, size, s.queued != nil)
	}
	for b.size > b.most {
		h := b.Largest()
		if h == nil || h.size <= b.spared {
			return
		}
		h.Oldest().Owner.Displace()
	}
}

// Drop removes a share.
func (b *Budget) Drop(s *Share) {
	if s.of == nil {
		return
	}
	b.set(s, 0, false)
	b.Shares--
	if s.of.Shares--; s.of.Shares == 0 {
		delete(b.holders, s.of.address)
	}
	*s = Share{Owner: s.Owner}
}

// set sets the size of a share, unless nobody holds it, and whether it waits and can be displaced.
func (b *Budget) set(s *Share, size int, waits bool) {
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
func (b *Budget) place(h *Holder) (place int, there bool) {
	if h.waiting.Len() == 0 {
		return 0, false
	}
	return slices.BinarySearchFunc(b.order, h, func(a, b *Holder) int {
		return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.Oldest().number, b.Oldest().number))
	})
}

// Held returns how many shares an address holds.
func (b *Budget) Held(address netip.Prefix) int {
	if h := b.holders[address]; h != nil {
		return h.Shares
	}
	return 0
}

// Largest returns the first holder in the order; nil if there is none.
func (b *Budget) Largest() *Holder {
	if len(b.order) == 0 {
		return nil
	}
	return b.order[0]
}

// Oldest returns the share that has waited for longest.
func (h *Holder) Oldest() *Share { return h.waiting.Front().Value.(*Share) }
