//go:build linux

package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"

	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
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
	requests []request
	unpaid   bool // only asks for the price
	confirms bool // each request confirms, in place of firstCursor, the page that the caller's last request returned
}

// firstCursor confirms nothing: server/cursor.go.
const firstCursor = "read_through=c0"

const (
	distinct         = perRole * peers // different requests of an operation
	distinctSearches = 64              // the same, where only the caller differs
	texts            = 8               // different messages that are sent
)

// The names of the operations that more than one part of the report uses.
const (
	sendOne    = "send to one conversation"
	sendMany   = "send to many conversations"
	newest     = "newest 50 messages"
	nothingNew = "unread, nothing new"
	ownAccount = "own account"

	behindUnread = "unread, a page of 50"
	wokenPoll    = "unread, waiting and confirming"
	agentSearch  = "agent search"
	wordSearch   = "message search, a word"
)

// operations are what is measured, in the order of the table.
func (d *dataset) operations() []operation {
	type body = map[string]any
	return []operation{
		newOperation(sendOne, "/chat/group/send", d.writers, func(i int) body {
			return body{"chat_id": server.ConversationID(store.KindGroup, d.group), "content": d.texts[i%texts]}
		}),
		newOperation(sendMany, "/chat/private/send", d.writers, func(i int) body {
			return body{"recipient_agent_id": server.AgentID(d.peers[i]), "content": d.texts[i%texts]}
		}),
		newOperation(newest, "/chat/group/messages", d.readers, func(i int) body {
			return body{"chat_id": server.ConversationID(store.KindGroup, d.rooms[i])}
		}),
		newOperation(nothingNew, "/agent/unread", d.readers, nil),
		newOperation(behindUnread, "/agent/unread?mark_read=false", d.behind, nil),
		confirming(newOperation("unread, confirming", "/agent/unread?page_size=1&"+firstCursor, d.behind, nil)),
		confirming(newOperation(wokenPoll, "/agent/unread?page_size=1&wait=60&"+firstCursor, d.behind, nil)),
		newOperation(ownAccount, "/agent/me", d.readers, nil),
		{name: "price (402)", method: http.MethodPost, unpaid: true, requests: []request{{target: "/chat/private/send"}}},
		newOperation(agentSearch, "/search/agents", d.readers, func(i int) body {
			return body{"query": agentQueries[i%len(agentQueries)]}
		}),
		d.searching(wordSearch, "harvest"),
		d.searching("message search, a rare word", rareWord),
		d.searching("message search, regex", `train to (Lisbon|Porto) leaves`),
		newOperation("profile", "/agent/profile", d.readers, func(i int) body {
			return body{"agent_id": server.AgentID(d.peers[i])}
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

func confirming(o operation) operation {
	o.confirms = true
	return o
}

// agentQueries are searches of the directory of agents: an occupation, a name, a place, and combinations.
var agentQueries = []string{
	"weather oracle", "tax clerk", "harbour_pilot_77", "chess_tutor", "Lisbon", "I translate contracts", "museum guide in Vienna", "garden",
}

func (d *dataset) searching(name, query string) operation {
	o := newOperation(name, "/chat/group/search", d.readers, func(int) map[string]any {
		return map[string]any{"chat_id": server.ConversationID(store.KindGroup, d.archive), "query": query}
	})
	o.requests = o.requests[:distinctSearches]
	return o
}

// newOperation returns an operation with distinct requests, by these callers in turn. Without a body its method is GET.
func newOperation(name, target string, callers []agent, body func(i int) map[string]any) operation {
	o := operation{name: name, method: http.MethodGet}
	for i := range distinct {
		r := request{caller: callers[i%len(callers)], target: target}
		if body != nil {
			o.method = http.MethodPost
			r.body, _ = json.Marshal(body(i)) // maps of strings
		}
		o.requests = append(o.requests, r)
	}
	return o
}
