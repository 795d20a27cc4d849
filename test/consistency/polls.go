package consistency

import (
	"fmt"
	"strings"
)

// placeUnread makes operations of what agents read.
func (h *history) placeUnread() {
	for _, k := range h.calls {
		if k.path == unreadPath && k.ok() && h.by(k) != "" {
			for _, shown := range k.response.Messages {
				h.chats[shown.SourceID] = h.facts.byID[shown.MessageID].conversation
			}
		}
	}
	for _, k := range h.calls {
		if strings.HasSuffix(k.path, "/send") {
			h.placeArrival(k)
		}
		for _, one := range h.changesOf(k) {
			if k.asked.ChatID != "" {
				h.noticesOf(one.agent, k.asked.ChatID) // before the polls, which can end before the change
			}
		}
	}
	for _, k := range h.calls {
		by := h.by(k)
		switch happened := k.ok() || k.unknown(); {
		case by == "" || !happened:
		case k.path == unreadPath:
			h.placePoll(k)
		case strings.HasSuffix(k.path, "/messages"):
			h.placePage(k)
		default:
			for _, one := range h.changesOf(k) {
				h.placeChange(k, one)
			}
		}
	}
}

// placeChange adds a change of the role of an agent in a group chat.
func (h *history) placeChange(k *call, one change) {
	if k.asked.ChatID == "" {
		return
	}
	begin, end := k.interval()
	if id := h.chats[k.asked.ChatID]; id != "" && one.kind != "unbanned" {
		role := one.role
		if role == banned {
			role = outsider
		}
		h.unread(one.agent, id).joins(begin, end, !k.ok(), role, h.tell(k, one))
	}
	h.placeNotice(k, one)
}

// placeArrival adds a message to what the others in its conversation can read.
func (h *history) placeArrival(k *call) {
	m, there, times := h.facts.sent(k)
	if !there || !k.ok() && times > 1 { // which one is not known
		return
	}
	begin, end := k.interval()
	for agent := range h.readers(k, m) {
		u := h.unread(agent, m.conversation)
		o := &op{begin: begin, end: end, appended: m.number, what: fmt.Sprintf("%s sends message %d", h.name(m.sender), m.number)}
		u.with(o, func(p *Partition, r reading) (reading, bool) {
			if m.number <= r.last || p.next(r.last) < m.number {
				return r, false
			}
			r.last = m.number
			return r, true
		})
	}
}

// readers are the agents that can read a message: the recipient, or those that its conversation was made for and who poll.
func (h *history) readers(k *call, m message) map[string]bool {
	readers := map[string]bool{}
	if to := k.asked.RecipientAgentID; to != "" {
		readers[to] = true
		return readers
	}
	members := h.members[k.asked.ChatID+k.asked.ChannelID]
	for _, agent := range h.agents {
		if agent != m.sender && members[agent] {
			readers[agent] = true
		}
	}
	return readers
}

// placePoll adds a call for unread messages.
func (h *history) placePoll(k *call) {
	begin, end := k.interval()
	agent := h.by(k)
	marks, through := k.poll()
	shown := h.numbers(k)
	name := h.name(agent)
	confirmed := map[string]span{}
	if page := h.pages[through]; page != nil {
		for conversation, numbers := range h.numbers(page) {
			confirmed[conversation] = span{numbers[0], numbers[len(numbers)-1]}
		}
	}
	for conversation, over := range confirmed {
		if numbers := shown[conversation]; len(numbers) > 0 && numbers[0] <= over.last {
			delete(confirmed, conversation) // it was locked for too long, and stays unread
			continue
		}
		h.unread(agent, conversation).marks(begin, end, !k.ok(), over, false,
			fmt.Sprintf("%s confirms messages %d to %d", name, over.first, over.last))
	}
	h.placeNotices(k, marks, through)
	if !k.ok() {
		if marks { // it may have marked anything
			for key, u := range h.unreads {
				if key[0] == agent {
					u.unclear(begin, name+" polls, and gets no response")
				}
			}
		}
		return
	}
	complete := k.response.Unread == int64(len(k.response.Messages))
	for key, u := range h.unreads {
		if key[0] != agent {
			continue
		}
		numbers := shown[key[1]]
		if len(numbers) > 0 || complete {
			what := fmt.Sprintf("%s sees as unread %v", name, numbers)
			if !complete {
				what += " and more"
			}
			u.shows(begin, end, numbers, complete, confirmed[key[1]], what)
		}
		if marks && len(numbers) > 0 {
			u.marks(begin, end, false, span{numbers[0], numbers[len(numbers)-1]}, true, fmt.Sprintf("%s takes %v", name, numbers))
		}
	}
}

// numbers are the messages of a page of unread messages, by conversation.
func (h *history) numbers(k *call) map[string][]int64 {
	numbers := map[string][]int64{}
	for _, shown := range k.response.Messages {
		m := h.facts.byID[shown.MessageID]
		numbers[m.conversation] = append(numbers[m.conversation], m.number)
	}
	return numbers
}

// placePage adds that a page of a conversation is marked as read.
func (h *history) placePage(k *call) {
	if k.asked.MarkRead != nil && !*k.asked.MarkRead {
		return
	}
	begin, end := k.interval()
	conversation := h.chats[k.asked.ChatID+k.asked.ChannelID]
	if conversation == "" {
		return
	}
	u := h.unread(h.by(k), conversation)
	name := h.name(h.by(k))
	shown := k.response.Messages
	switch {
	case !k.ok():
		u.unclear(begin, name+" reads a page, and gets no response")
	case len(shown) > 0:
		over := span{h.facts.byID[shown[len(shown)-1].MessageID].number, h.facts.byID[shown[0].MessageID].number}
		u.marks(begin, end, false, over, false, fmt.Sprintf("%s reads messages %d to %d", name, over.first, over.last))
	}
}
