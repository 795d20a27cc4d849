package consistency

import (
	"net/http"
	"testing"
	"time"
)

// chat makes a history of a conversation in which alice and bob send and read. Times are in milliseconds.
type chat struct {
	calls []*call
	facts *Facts
}

func newChat(stored ...string) *chat {
	c := &chat{facts: &Facts{byID: map[string]message{}, byContent: map[string][]message{}, senders: map[string]map[int64]string{"c": {}}}}
	for i, content := range stored {
		m := message{"c", "alice", int64(i + 1)}
		c.facts.byID[content], c.facts.byContent[content] = m, append(c.facts.byContent[content], m)
		c.facts.senders["c"][m.number] = m.sender
	}
	return c
}

func (c *chat) sends(begin, end int64, content string, status int) *chat {
	one := &call{path: "/chat/group/send", key: "alice", asked: asked{ChatID: "chat", Content: content}}
	return c.done(one, begin, end, status, answer{MessageID: content})
}

func (c *chat) reads(begin, end int64, newestFirst ...string) *chat {
	one := &call{path: "/chat/group/messages", key: "bob", asked: asked{ChatID: "chat", N: 20}}
	page := answer{Total: int64(len(newestFirst))}
	for _, id := range newestFirst {
		page.Messages = append(page.Messages, struct {
			MessageID string `json:"message_id"`
			SourceID  string `json:"source_id"`
		}{MessageID: id})
	}
	return c.done(one, begin, end, http.StatusOK, page)
}

func (c *chat) bans(begin, end int64) *chat {
	one := &call{path: "/chat/group/edit", key: "alice", asked: asked{ChatID: "chat", Ban: []string{"bob"}}}
	return c.done(one, begin, end, http.StatusOK, answer{})
}

func (c *chat) done(one *call, begin, end int64, status int, got answer) *chat {
	one.attempts = []attempt{{begin: ms(begin), end: ms(end), status: status, unknown: status == 0}}
	if status == http.StatusOK {
		one.response, one.first200 = got, ms(end)
	}
	c.calls = append(c.calls, one)
	return c
}

func ms(n int64) int64 { return n * int64(time.Millisecond) }

func recorded(calls []*call, uses ...use) *Recorder {
	r := NewRecorder(nil)
	for _, agent := range []string{"alice", "bob"} {
		r.order = append(r.order, &call{path: "/agent/me", key: agent, first200: 1, response: answer{AgentID: agent}})
	}
	r.order, r.uses = append(r.order, calls...), uses
	return r
}

// TestConversations: which histories of a conversation are possible.
func TestConversations(t *testing.T) {
	for name, test := range map[string]struct {
		chat *chat
		want bool
	}{
		"a read during a send sees it or not": {newChat("a").sends(0, 9, "a", 200).reads(1, 2).reads(3, 4, "a").reads(5, 6, "a"), true},
		"a read after a send must see it":     {newChat("a", "b").sends(0, 1, "a", 200).sends(2, 3, "b", 200).reads(4, 5, "a"), false},
		"nobody sees a message and then not":  {newChat("a").sends(0, 9, "a", 200).reads(1, 2, "a").reads(3, 4), false},
		"a message is lost":                   {newChat().sends(0, 1, "a", 200), false},
		"a message is there twice":            {newChat("a", "a").sends(0, 1, "a", 200), false},
		"without a response it may be lost":   {newChat().sends(0, 1, "a", 0).reads(2, 3), true},
		"without a response it may come late": {newChat("a").sends(0, 1, "a", 0).reads(2, 3).reads(4, 5, "a"), true},
		"it cannot come before its request":   {newChat("a").reads(0, 1, "a").sends(2, 3, "a", 0), false},
		"the order is that of the responses":  {newChat("b", "a").sends(0, 1, "a", 200).sends(2, 3, "b", 200), false},
		"a banned agent reads":                {newChat("a").sends(0, 1, "a", 200).reads(2, 3, "a").bans(4, 5).reads(6, 7, "a"), false},
		"a read during a ban":                 {newChat("a").sends(0, 1, "a", 200).bans(4, 8).reads(5, 6, "a"), true},
	} {
		t.Run(name, func(t *testing.T) {
			report := &Report{}
			report.Check(recorded(test.chat.calls).Partitions(test.chat.facts, Scope{Rights: true, Complete: true}))
			if possible := len(report.Anomalies) == 0; possible != test.want {
				t.Errorf("the history is possible: %v, want %v: %q", possible, test.want, report.Wrong())
			}
		})
	}
}

// TestBlocksOfOthers: a block counts in the private chat of its two agents only, even if no response has named that chat.
func TestBlocksOfOthers(t *testing.T) {
	for blocked, want := range map[string]bool{"bob": false, "carol": true} {
		c := newChat("a", "b")
		send := func(begin int64, content string, status int) {
			c.done(&call{path: "/chat/private/send", key: "alice", asked: asked{RecipientAgentID: "bob", Content: content}},
				begin, begin+1, status, answer{ChatID: "chat", MessageID: content})
		}
		send(0, "a", 0)
		c.done(&call{path: "/agent/block", key: "alice", asked: asked{AgentID: blocked}}, 2, 3, http.StatusOK, answer{})
		send(4, "b", http.StatusOK)
		report := &Report{}
		report.Check(recorded(c.calls).Partitions(c.facts, Scope{Rights: true}))
		if possible := len(report.Anomalies) == 0; possible != want {
			t.Errorf("a message to bob after a block of %s is possible: %v, want %v: %q", blocked, possible, want, report.Wrong())
		}
	}
}

// TestStaleKey: after a rotation its server rejects the old key at once, the others within StaleKey.
func TestStaleKey(t *testing.T) {
	for name, test := range map[string]struct {
		server string
		after  time.Duration // the end of the rotation
		status int
		want   bool
	}{
		"the same server":         {"one", time.Millisecond, http.StatusOK, false},
		"another one, in time":    {"two", StaleKey - time.Millisecond, http.StatusOK, true},
		"another one, too late":   {"two", StaleKey + time.Millisecond, http.StatusOK, false},
		"another one, rejects it": {"two", time.Millisecond, http.StatusUnauthorized, true},
	} {
		t.Run(name, func(t *testing.T) {
			rotation := &call{path: rotatePath, key: "alice", first200: ms(20), response: answer{APIKey: "new"},
				attempts: []attempt{{server: "one", begin: ms(10), end: ms(20), status: http.StatusOK}}}
			begin := ms(20) + int64(test.after)
			used := use{attempt{server: test.server, begin: begin, end: begin + ms(1), status: test.status}, "alice"}
			before := use{attempt{server: test.server, begin: ms(1), end: ms(2), status: http.StatusOK}, "alice"}
			report := &Report{}
			report.Check(recorded([]*call{rotation}, used, before).Partitions(newChat().facts, Scope{}))
			if possible := len(report.Anomalies) == 0; possible != test.want {
				t.Errorf("the history is possible: %v, want %v: %q", possible, test.want, report.Wrong())
			}
		})
	}
}

// TestReturningKey: no two rotations return one key.
func TestReturningKey(t *testing.T) {
	var rotations []*call
	for i, key := range []string{"alice", "new"} {
		begin := ms(10 * int64(i+1))
		rotations = append(rotations, &call{path: rotatePath, key: key, first200: begin + ms(5), response: answer{APIKey: "new"},
			attempts: []attempt{{server: "one", begin: begin, end: begin + ms(5), status: http.StatusOK}}})
	}
	report := &Report{}
	report.Check(recorded(rotations).Partitions(newChat().facts, Scope{}))
	if len(report.Anomalies) == 0 {
		t.Error("the history is possible")
	}
}
