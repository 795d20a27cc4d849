package consistency

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	rotatePath = "/agent/rotate_key"
	unreadPath = "/agent/unread"
)

// Scope says what else than messages and payments the clients of a run can explain.
type Scope struct {
	// Rights: all changes of members, bans and blocks are recorded.
	Rights bool
	// Unread: all that an agent reads, and its notices, are recorded.
	Unread bool
	// Complete: all messages are sent by recorded calls, which none of the service's own are.
	Complete bool
}

// StaleKey is how long a server may accept a key that another server has replaced.
const StaleKey = time.Second

// history is what a recorder knows, ready to be made into partitions.
type history struct {
	calls   []*call
	uses    []use
	scope   Scope
	facts   *Facts
	agents  map[string]string          // by API key
	names   map[string]string          // short names of agents
	chats   map[string]string          // conversations by the ids of chats and channels
	pairs   map[string]string          // private chats by the ids of their agents
	members map[string]map[string]bool // of group chats and channels, when they were made
	pages   map[string]*call           // of unread messages, by cursor
	convs   map[string]*conversation   // by id
	unreads map[[2]string]*unread      // by agent and conversation
	notices map[[2]string]*Partition   // by agent and chat
	done    []*Partition
}

// Partitions returns the histories of conversations, unread messages, notices, keys and payment channels.
func (r *Recorder) Partitions(facts *Facts, scope Scope) []*Partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &history{
		calls: r.order, uses: r.uses, scope: scope, facts: facts, agents: map[string]string{}, names: map[string]string{},
		members: map[string]map[string]bool{}, chats: map[string]string{}, pairs: map[string]string{}, pages: map[string]*call{},
		convs:   map[string]*conversation{},
		unreads: map[[2]string]*unread{}, notices: map[[2]string]*Partition{},
	}
	h.learn()
	for _, c := range h.calls {
		h.place(c)
	}
	if scope.Unread {
		h.placeUnread()
	}
	h.placeKeys()
	return slices.DeleteFunc(append(h.done, r.payments.partitions()...), func(p *Partition) bool { return len(p.ops) == 0 })
}

// learn finds out who and what the calls are about.
func (h *history) learn() {
	for _, c := range h.calls {
		switch {
		case !c.ok():
		case c.path == "/agent/me":
			h.agents[c.key] = c.response.AgentID
		case c.path == unreadPath:
			h.pages[c.response.Cursor] = c
		}
	}
	for range 2 { // keys of keys that are only known later
		for _, c := range h.calls {
			if agent := h.agents[c.key]; c.path == rotatePath && c.ok() && agent != "" {
				h.agents[c.response.APIKey] = agent
			}
		}
	}
	for _, c := range h.calls {
		id := c.response.ChatID + c.response.ChannelID
		switch {
		case !c.ok():
		case c.path == "/chat/group/create", c.path == "/channel/create":
			h.members[id] = map[string]bool{h.by(c): true}
			for _, agent := range c.asked.Initial {
				h.members[id][agent] = true
			}
		case c.path == "/channel/subscribe" && h.members[c.asked.ChannelID] != nil:
			h.members[c.asked.ChannelID][h.by(c)] = true
		}
	}
	for _, c := range h.calls {
		m, sent, _ := h.facts.sent(c)
		if !sent {
			continue
		}
		switch c.path {
		case "/chat/private/send":
			h.pairs[pairOf(h.by(c), c.asked.RecipientAgentID)] = m.conversation
			if c.ok() { // without a response nothing has named the chat
				h.chats[c.response.ChatID] = m.conversation
			}
		case "/chat/group/send":
			h.chats[c.asked.ChatID] = m.conversation
		case "/channel/send":
			h.chats[c.asked.ChannelID] = m.conversation
		}
	}
}

func (h *history) by(c *call) string { return h.agents[c.key] }

// name is a short name of an agent.
func (h *history) name(agent string) string {
	if h.names[agent] == "" {
		h.names[agent] = fmt.Sprintf("agent %d", len(h.names)+1)
	}
	return h.names[agent]
}

func pairOf(a, b string) string { return min(a, b) + " " + max(a, b) }

func (h *history) conversation(kind, id string) *conversation {
	c := h.convs[id]
	if c == nil {
		c = &conversation{h: h, Partition: &Partition{Kind: kind, Name: id, strict: h.scope.Complete, initial: roles{}}}
		h.convs[id] = c
		h.done = append(h.done, c.Partition)
	}
	return c
}

// place makes operations of conversations of a call.
func (h *history) place(k *call) {
	code, _ := k.refused()
	kind, id := "group chat", h.chats[cmp.Or(k.asked.ChatID, k.asked.ChannelID)]
	switch {
	case strings.HasPrefix(k.path, "/chat/private/"), k.path == "/agent/block", k.path == "/agent/unblock":
		kind = "private chat"
		if id == "" {
			id = h.pairs[pairOf(h.by(k), cmp.Or(k.asked.RecipientAgentID, k.asked.AgentID))]
		}
	case strings.HasPrefix(k.path, "/channel/"):
		kind = "channel"
	case !strings.HasPrefix(k.path, "/chat/group/"):
		return
	}
	if strings.HasSuffix(k.path, "/send") {
		h.placeSend(k, kind, id, code)
		return
	}
	if id == "" || h.by(k) == "" {
		return
	}
	c := h.conversation(kind, id)
	switch {
	case strings.HasSuffix(k.path, "/messages"):
		switch {
		case k.ok() && k.asked.Page <= 1 && k.asked.Before == "":
			c.lists(k, h.facts)
		case h.scope.Rights && refusals[code] != 0:
			c.refused(k, code)
		}
	case h.scope.Rights && (k.ok() || k.unknown()):
		for _, one := range h.changesOf(k) {
			c.changes(k, one)
		}
	}
}

// placeSend adds a call that sends a message.
func (h *history) placeSend(k *call, kind, id, code string) {
	m, there, times := h.facts.sent(k)
	switch {
	case there:
		c := h.conversation(kind, m.conversation)
		switch {
		case times > 1:
			c.lost(k, fmt.Sprintf("and the message is there %d times", times))
		case h.scope.Complete && code != "" && !k.unknown() && !k.ok():
			c.lost(k, "gets "+code+", and the message is there")
		default:
			c.sends(k, m)
		}
	case k.ok():
		h.conversation(kind, cmp.Or(id, "of "+k.asked.RecipientAgentID)).lost(k, "is told that it was sent, and the message is not there")
	case h.scope.Rights && id != "" && (refusals[code] != 0 || code == "blocked" || code == "blocking"):
		h.conversation(kind, id).refused(k, code)
	}
}
