//go:build linux

package main

import (
	"encoding/json"
	"net/http"
)

// request is one call of an operation.
type request struct {
	caller agent
	target string // path and query
	body   []byte
}

// operation is something that agents do, and all the different calls that it is measured with.
type operation struct {
	name     string
	method   string
	path     string
	requests []request
	// said is how many different things are said or looked for, by turns. Requests that are alike in that become one
	// pgbench script, in which who and where are parameters.
	said   int
	unpaid bool // sent without payment, whatever it costs
}

// alike returns the requests that say the same.
func (o operation) alike(said int) (those []request) {
	for i := said; i < len(o.requests); i += o.said {
		those = append(those, o.requests[i])
	}
	return those
}

const (
	// distinct is how many different calls an operation is measured with.
	distinct = perRole * peers
	// fewer is the same where calls differ in the caller alone, who makes no difference.
	fewer = 32
	// texts is how many different messages are sent.
	texts = 8
)

// The names of the operations that more than one part of the report is about.
const (
	sendOne    = "send to one conversation"
	sendMany   = "send to many conversations"
	newest     = "newest 50 messages"
	nothingNew = "unread, nothing new"
	rareSearch = "message search, a rare word"

	sendPath = "/chat/private/send"
)

// operations are what is measured, in the order of the table.
func (h *house) operations() []operation {
	return []operation{
		h.post(sendOne, "/chat/group/send", texts, h.writers, func(i int) any {
			return map[string]any{"chat_id": typeID("chat_", h.group), "content": h.said[i%texts]}
		}),
		h.post(sendMany, sendPath, texts, h.writers, func(i int) any {
			return map[string]any{"recipient_agent_id": typeID("agent_", h.peers[i%perRole][i/perRole]), "content": h.said[i%texts]}
		}),
		h.post(newest, "/chat/group/messages", 1, h.readers, func(i int) any {
			return map[string]any{"chat_id": typeID("chat_", h.rooms[i%perRole][i/perRole])}
		}),
		h.get(nothingNew, "/agent/unread", "", h.readers),
		h.get("unread, a page of 50", "/agent/unread", "?mark_read=false", h.behind),
		h.post("agent search", "/search/agents", len(searched), h.readers, func(i int) any {
			return map[string]any{"query": searched[i%len(searched)]}
		}),
		h.searching("message search, a word", "harvest"),
		h.searching(rareSearch, rareWord),
		h.searching("message search, regex", `train to (Lisbon|Porto) leaves`),
		h.post("profile", "/agent/profile", 1, h.readers, func(i int) any {
			return map[string]any{"agent_id": typeID("agent_", h.peers[i%perRole][i/perRole])}
		}),
	}
}

// searched is what agents look for in the directory of agents: a calling, a name, a place, and some of each.
var searched = []string{
	"weather oracle", "tax clerk", "harbour_pilot_77", "chess_tutor", "Lisbon", "I translate contracts", "museum guide in Vienna", "garden",
}

func (h *house) searching(name, query string) operation {
	o := h.post(name, "/chat/group/search", 1, h.readers, func(int) any {
		return map[string]any{"chat_id": typeID("chat_", h.archive), "query": query}
	})
	o.requests = o.requests[:fewer]
	return o
}

func (h *house) post(name, path string, said int, callers []agent, body func(i int) any) operation {
	o := operation{name: name, method: http.MethodPost, path: path, said: said}
	for i := range distinct {
		raw, err := json.Marshal(body(i))
		if err != nil {
			panic(err) // maps of strings
		}
		o.requests = append(o.requests, request{caller: callers[i%len(callers)], target: path, body: raw})
	}
	return o
}

func (h *house) get(name, path, query string, callers []agent) operation {
	o := operation{name: name, method: http.MethodGet, path: path, said: 1}
	for i := range distinct {
		o.requests = append(o.requests, request{caller: callers[i%len(callers)], target: path + query})
	}
	return o
}
