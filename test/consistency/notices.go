package consistency

import (
	"encoding/json"
	"fmt"
)

// noticed is an agent in a group chat, and its notice about it, of which there is at most one: the newest.
type noticed struct {
	role byte
	kind string      // of the notice, "" for none, anyNotice if it is not known
	at   json.Number // when the service says that it was written, once it was seen
}

const anyNotice = "?"

func (h *history) noticesOf(agent, chat string) *Partition {
	key := [2]string{agent, chat}
	p := h.notices[key]
	if p == nil {
		p = &Partition{Kind: "notices", Name: fmt.Sprintf("of %s about %s", h.name(agent), chat), initial: noticed{member, anyNotice, ""}}
		h.notices[key] = p
		h.done = append(h.done, p)
	}
	return p
}

// placeNotice adds a change of an agent's role by the admin, which writes a notice in place of the one before, unless nothing changes.
func (h *history) placeNotice(k *call, one change) {
	begin, end := k.interval()
	o := &op{begin: begin, end: end, indefinite: !k.ok(), what: h.tell(k, one)}
	o.step = func(_ *Partition, state any) (any, bool) {
		n := state.(noticed) //nolint:forcetypeassert // of this partition
		switch {
		case one.kind == "added" && n.role == banned:
			return n, !k.ok() // it is refused
		case n.role == one.role, one.kind == "removed" && n.role == banned, one.kind == "unbanned" && n.role == member:
			return n, true
		case one.kind == "added", (one.kind == "removed" || one.kind == "banned") && n.role == member:
			return noticed{one.role, one.kind, ""}, true
		}
		n.role = one.role
		return n, true
	}
	h.noticesOf(one.agent, k.asked.ChatID).add(o)
}

// placeNotices adds what a poll says of notices. One that is being replaced is left out by a poll that marks.
func (h *history) placeNotices(k *call, marks bool, through string) {
	begin, end := k.interval()
	agent := h.by(k)
	name := h.name(agent)
	for key, p := range h.notices {
		if key[0] != agent {
			continue
		}
		confirmed := noticesAbout(h.pages[through], key[1])
		if len(confirmed) > 0 {
			p.add(&op{begin: begin, end: end, indefinite: !k.ok(), what: fmt.Sprintf("%s confirms the notice %s", name, confirmed[0].Type),
				step: func(_ *Partition, state any) (any, bool) { return state.(noticed).confirmed(confirmed[0]), true }})
		}
		if !k.ok() {
			if marks { // it may have taken one
				p.add(&op{begin: begin, end: end, indefinite: true, what: name + " polls, and gets no response",
					step: func(_ *Partition, state any) (any, bool) {
						n := state.(noticed) //nolint:forcetypeassert // of this partition
						return noticed{n.role, anyNotice, ""}, true
					}})
			}
			continue
		}
		seen := noticesAbout(k, key[1])
		if len(seen) == 0 && marks {
			continue
		}
		p.add(&op{begin: begin, end: end, what: fmt.Sprintf("%s sees the notices %v", name, seen),
			step: func(_ *Partition, state any) (any, bool) {
				n := state.(noticed) //nolint:forcetypeassert // of this partition
				if len(confirmed) > 0 {
					before := n
					if n = n.confirmed(confirmed[0]); (n.kind == "" || n.kind == anyNotice) && len(seen) == 0 {
						return before, true
					}
				}
				return n.shown(seen, marks)
			}})
	}
}

func noticesAbout(k *call, chat string) (about []notice) {
	if k == nil {
		return nil
	}
	for _, one := range k.response.Notices {
		if one.SourceID == chat {
			about = append(about, one)
		}
	}
	return about
}

// confirmed is the state after a notice that was seen is confirmed.
func (n noticed) confirmed(one notice) noticed {
	switch {
	case n.kind == one.Type && n.at == one.At:
		n.kind, n.at = "", ""
	case n.kind == one.Type && n.at == "": // whether it is this one is not known
		n.kind = anyNotice
	}
	return n
}

// shown returns the state if a response can show these notices. A poll that marks takes them.
func (n noticed) shown(seen []notice, taken bool) (noticed, bool) {
	switch {
	case len(seen) > 1:
		return n, false
	case len(seen) == 0:
		possible := n.kind == "" || n.kind == anyNotice
		n.kind, n.at = "", ""
		return n, possible
	case n.kind != anyNotice && (n.kind != seen[0].Type || n.at != "" && n.at != seen[0].At):
		return n, false
	}
	n.kind, n.at = seen[0].Type, seen[0].At
	if taken {
		n.kind, n.at = "", ""
	}
	return n, true
}
