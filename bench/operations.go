//go:build linux

package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
)

// request is one call of an operation.
type request struct {
	caller agent
	target string // path and query
	body   []byte
}

// operation is a call of the contract, and all the different requests that it is measured with.
type operation struct {
	name     string
	method   string
	path     string
	requests []request
	// variants is how many different texts are sent or searched for, in turn. Requests with the same text become one
	// pgbench script, in which the caller and the conversation are parameters.
	variants int
	unpaid   bool // sent without payment, whatever it costs
}

// ofVariant returns the requests with one of the texts.
func (o operation) ofVariant(variant int) (some []request) {
	for i := variant; i < len(o.requests); i += o.variants {
		some = append(some, o.requests[i])
	}
	return some
}

const (
	distinct         = perRole * peers // different requests of an operation
	distinctSearches = 32              // the same, where only the caller differs
	texts            = 8               // different messages that are sent
)

// The names of the operations that more than one part of the report uses.
const (
	sendOne    = "send to one conversation"
	sendMany   = "send to many conversations"
	newest     = "newest 50 messages"
	nothingNew = "unread, nothing new"

	sendPath = "/chat/private/send"
)

// operations are what is measured, in the order of the table.
func (d *dataset) operations() []operation {
	return []operation{
		post(sendOne, "/chat/group/send", texts, d.writers, func(i int) any {
			return map[string]any{"chat_id": typeID("chat_", d.group), "content": d.texts[i%texts]}
		}),
		post(sendMany, sendPath, texts, d.writers, func(i int) any {
			return map[string]any{"recipient_agent_id": typeID("agent_", d.peers[i%perRole][i/perRole]), "content": d.texts[i%texts]}
		}),
		post(newest, "/chat/group/messages", 1, d.readers, func(i int) any {
			return map[string]any{"chat_id": typeID("chat_", d.rooms[i%perRole][i/perRole])}
		}),
		get(nothingNew, "/agent/unread", "", d.readers),
		get("unread, a page of 50", "/agent/unread", "?mark_read=false", d.behind),
		post("agent search", "/search/agents", len(agentQueries), d.readers, func(i int) any {
			return map[string]any{"query": agentQueries[i%len(agentQueries)]}
		}),
		d.searching("message search, a word", "harvest"),
		d.searching("message search, a rare word", rareWord),
		d.searching("message search, regex", `train to (Lisbon|Porto) leaves`),
		post("profile", "/agent/profile", 1, d.readers, func(i int) any {
			return map[string]any{"agent_id": typeID("agent_", d.peers[i%perRole][i/perRole])}
		}),
	}
}

// matching returns the operations whose names match.
func (d *dataset) matching(names *regexp.Regexp) []operation {
	return slices.DeleteFunc(d.operations(), func(o operation) bool { return !names.MatchString(o.name) })
}

// named returns one of the operations.
func (d *dataset) named(name string) operation {
	return d.matching(regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$"))[0]
}

// agentQueries are searches of the directory of agents: an occupation, a name, a place, and combinations.
var agentQueries = []string{
	"weather oracle", "tax clerk", "harbour_pilot_77", "chess_tutor", "Lisbon", "I translate contracts", "museum guide in Vienna", "garden",
}

func (d *dataset) searching(name, query string) operation {
	o := post(name, "/chat/group/search", 1, d.readers, func(int) any {
		return map[string]any{"chat_id": typeID("chat_", d.archive), "query": query}
	})
	o.requests = o.requests[:distinctSearches]
	return o
}

func post(name, path string, variants int, callers []agent, body func(i int) any) operation {
	o := operation{name: name, method: http.MethodPost, path: path, variants: variants}
	for i := range distinct {
		raw, err := json.Marshal(body(i))
		if err != nil {
			panic(err) // maps of strings
		}
		o.requests = append(o.requests, request{caller: callers[i%len(callers)], target: path, body: raw})
	}
	return o
}

func get(name, path, query string, callers []agent) operation {
	o := operation{name: name, method: http.MethodGet, path: path, variants: 1}
	for i := range distinct {
		o.requests = append(o.requests, request{caller: callers[i%len(callers)], target: path + query})
	}
	return o
}
