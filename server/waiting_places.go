package server

import (
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
)

const (
	// unpaidFor is how long the room remembers that an account left without paying, and maxUnpaid of how many accounts.
	unpaidFor = time.Hour
	maxUnpaid = 1 << 14
)

// places are the places of the waiting room. They cost nothing until a call leaves, so when all are taken, accounts make room first that
// did not pay for their last waits. Some may be honest, with a bad connection: they wait while there is room, and have the same right as
// others after the next wait that they pay for. The caller of all methods holds the lock of the room.
type places struct {
	most           int
	unpaid         payment.Recent[uuid.UUID, struct{}] // accounts whose last wait ended unpaid
	trusted, risky edge.Budget                         // what others hold, and what these hold, by client address
}

func newPlaces(most int) places {
	unpaid := payment.NewRecent[uuid.UUID, struct{}](maxUnpaid)
	return places{most: most, unpaid: unpaid, trusted: edge.NewBudget(most, 0), risky: edge.NewBudget(most, 0)}
}

// take takes a place. If there is none left, it displaces the oldest call of the address that holds most: among the risky ones if there are
// any. It returns false if that is of a better kind than the newcomer, or of the same kind and its address holds no more than that of the
// newcomer would: else equals displaced each other in turn.
func (p *places) take(w *wait) bool {
	kind := &p.trusted
	if _, unpaid := p.unpaid.Get(w.Agent); unpaid {
		kind = &p.risky
	}
	if p.trusted.Shares+p.risky.Shares >= p.most {
		worst := &p.risky
		if worst.Shares == 0 {
			worst = &p.trusted
		}
		most := worst.Largest()
		switch {
		case kind == &p.risky && worst == &p.trusted, kind == worst && most.Shares <= kind.Held(w.Address)+1:
			return false
		}
		most.Oldest().Owner.Displace()
	}
	w.kind, w.place.Owner = kind, w
	kind.Hold(&w.place, w.Address, 1)
	return true
}

// leave gives the place of a call back. Unpaid means that its caller has ended it.
func (p *places) leave(w *wait, unpaid bool) {
	w.kind.Drop(&w.place)
	if unpaid {
		p.unpaid.Add(w.Agent, struct{}{}, unpaidFor)
	}
}

// Displace ends a call in favor of another one. The caller holds the lock of the room.
func (w *wait) Displace() {
	w.room.refused.Inc()
	w.room.remove(w, errRoomFull)
}

// settle records whether a call that has left the room was paid for. It is not the caller's fault if the server fails, or if another call,
// which was paid for, has used the payment channel.
func (r *waitingRoom) settle(w *wait, hungUp bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.places.unpaid.Remove(w.Agent)
	case hungUp, !w.overtaken && problemOf(err).status < 500:
		r.places.unpaid.Add(w.Agent, struct{}{}, unpaidFor)
	}
}
