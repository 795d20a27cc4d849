package server

import (
	"container/heap"
	"container/list"
	"net/netip"
)

// shares are what callers hold of something limited, by address. When it runs out, the address that holds most loses the share that has
// waited for longest. So an address that takes much harms itself first. The caller of all methods holds the lock of the connections.
type shares struct {
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

func newShares() shares { return shares{holders: map[netip.Prefix]*holder{}} }

// wait adds a share that can be displaced.
func (p *shares) wait(s *share, address netip.Prefix, size int) {
	h := p.holders[address]
	if h == nil {
		h = &holder{address: address, index: -1}
		p.holders[address] = h
	}
	p.put++
	s.of, s.size, s.number, s.queued = h, size, p.put, h.waiting.PushBack(s)
	h.shares++
	h.size += size
	p.changed(h)
}

// grow changes the size of a share.
func (p *shares) grow(s *share, by int) {
	s.size += by
	s.of.size += by
	p.changed(s.of)
}

// keep makes a share one that cannot be displaced.
func (p *shares) keep(s *share) {
	if s.queued != nil {
		s.of.waiting.Remove(s.queued)
		s.queued = nil
		p.changed(s.of)
	}
}

// drop removes a share and returns its size.
func (p *shares) drop(s *share) (size int) {
	if s.of == nil {
		return 0
	}
	h := s.of
	size = s.size
	h.size -= size
	h.shares--
	if s.queued != nil {
		h.waiting.Remove(s.queued)
	}
	p.changed(h)
	if h.shares == 0 {
		delete(p.holders, h.address)
	}
	*s = share{owner: s.owner}
	return size
}

// changed restores the order of the holders.
func (p *shares) changed(h *holder) {
	switch waits := h.waiting.Len() > 0; {
	case waits && h.index < 0:
		heap.Push(&p.order, h)
	case waits:
		heap.Fix(&p.order, h.index)
	case h.index >= 0:
		heap.Remove(&p.order, h.index)
	}
}

// largest returns the holder with the largest sum among those that have a share to displace; nil if there is none.
func (p *shares) largest() *holder {
	if len(p.order) == 0 {
		return nil
	}
	return p.order[0]
}

// oldest returns the share that has waited for longest; nil if none waits.
func (h *holder) oldest() *share {
	if h == nil || h.waiting.Len() == 0 {
		return nil
	}
	return h.waiting.Front().Value.(*share)
}

// holderHeap has the largest holder first. Of equal ones, that with the share that has waited for longest.
type holderHeap []*holder

func (o holderHeap) Len() int { return len(o) }

func (o holderHeap) Less(i, j int) bool {
	if o[i].size != o[j].size {
		return o[i].size > o[j].size
	}
	return o[i].oldest().number < o[j].oldest().number
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
