package consistency

import "slices"

// reading is the state of an agent in a conversation: what it has read, and how far its marking polls have come.
type reading struct {
	log         // of the messages that others sent
	role   byte // member or outsider
	marker int64
	taken  int64
}

// lostMarker is a marker that is not known.
const lostMarker = int64(-1)

// unread collects the operations of an agent in a conversation.
type unread struct {
	*Partition
	agent   string
	foreign []int64
}

func (h *history) unread(agent, conversation string) *unread {
	u := h.unreads[[2]string{agent, conversation}]
	if u == nil {
		u = &unread{agent: agent, foreign: h.facts.foreign(conversation, agent), Partition: &Partition{
			Kind: "unread messages", Name: h.name(agent) + " in " + conversation, initial: reading{role: member},
		}}
		h.unreads[[2]string{agent, conversation}] = u
		h.done = append(h.done, u.Partition)
	}
	return u
}

// between returns the messages of others after a number, up to another one.
func (u *unread) between(after, last int64) []int64 {
	from, _ := slices.BinarySearch(u.foreign, after+1)
	to, _ := slices.BinarySearch(u.foreign, last+1)
	return u.foreign[from:max(from, to)]
}

// with adds an operation of a step on what was read.
func (u *unread) with(o *op, step func(p *Partition, r reading) (reading, bool)) {
	u.add(stepping(o, step))
}

// unclear adds a call that may have marked anything.
func (u *unread) unclear(begin int64, what string) {
	u.with(&op{begin: begin, end: never, indefinite: true, what: what}, func(_ *Partition, r reading) (reading, bool) {
		r.marker = lostMarker
		return r, true
	})
}

// span is a range of numbers; the zero value is none.
type span struct{ first, last int64 }

// read moves a marker over a range, unless that would skip an unread message.
func (u *unread) read(r reading, over span) reading {
	if over.last == 0 || r.role == outsider || r.marker == lostMarker || over.last <= r.marker || len(u.between(r.marker, over.first-1)) > 0 {
		return r
	}
	r.marker = over.last
	return r
}

// marks adds that a call marks a range as read. A poll that marks what it returns takes it: no other one returns it.
func (u *unread) marks(begin, end int64, indefinite bool, over span, takes bool, what string) {
	u.with(&op{begin: begin, end: end, indefinite: indefinite, what: what}, func(_ *Partition, r reading) (reading, bool) {
		possible := !takes || over.first > r.taken
		if takes {
			r.taken = over.last
		}
		return u.read(r, over), possible
	})
}

// shows adds a snapshot of what is unread. Complete means that nothing is missing. The call itself may have marked a range before.
func (u *unread) shows(begin, end int64, numbers []int64, complete bool, marked span, what string) {
	u.with(&op{begin: begin, end: end, what: what}, func(p *Partition, r reading) (reading, bool) {
		if r.role == outsider {
			return r, len(numbers) == 0
		}
		if len(numbers) > 0 {
			newest := numbers[len(numbers)-1]
			if newest > r.last {
				if p.next(r.last) <= newest {
					return r, false
				}
				r.last = newest
			}
			if r.marker == lostMarker {
				r.marker = numbers[0] - 1
			}
		}
		if r.marker == lostMarker {
			if complete {
				r.marker = r.last
			}
			return r, true
		}
		expected := u.between(u.read(r, marked).marker, r.last)
		if complete {
			return r, slices.Equal(numbers, expected)
		}
		return r, len(numbers) <= len(expected) && slices.Equal(numbers, expected[:len(numbers)])
	})
}

// joins adds that the agent becomes a member, or is one no longer.
func (u *unread) joins(begin, end int64, indefinite bool, role byte, what string) {
	u.with(&op{begin: begin, end: end, indefinite: indefinite, what: what}, func(p *Partition, r reading) (reading, bool) {
		switch role {
		case r.role:
		case member:
			r.marker = r.last // what was sent before counts as read
			if after := u.between(r.last, never); len(after) > 0 && p.next(r.last) != after[0] {
				r.marker = lostMarker
			}
			r.role = member
		default:
			r.role = role
		}
		return r, true
	})
}
