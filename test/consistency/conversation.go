package consistency

import (
	"fmt"
	"slices"
	"strings"
)

// roles are the state of a conversation: its log, and the role of each agent. In a group chat an agent is a member, banned or neither. In a
// private chat it blocks the other one or does not.
type roles struct {
	log
	of string // a letter for each agent, in the order of the names
}

const (
	anyRole  = '?' // not known yet: the first call that depends on it tells
	member   = 'm'
	outsider = '-'
	banned   = 'b'
	blocking = 'x'
	open     = 'o'
)

// is returns the state if an agent can have one of the roles.
func (r roles) is(agent int, possible ...byte) (roles, bool) {
	now := r.of[agent]
	if now == anyRole {
		return r.with(agent, possible[0]), true
	}
	return r, slices.Contains(possible, now)
}

func (r roles) with(agent int, role byte) roles {
	of := []byte(r.of)
	of[agent] = role
	r.of = string(of)
	return r
}

// conversation collects the operations of one.
type conversation struct {
	*Partition
	h      *history
	agents []string
}

func (c *conversation) agent(id string) int {
	i := slices.Index(c.agents, id)
	if i < 0 {
		c.agents = append(c.agents, id)
		i = len(c.agents) - 1
		c.initial = roles{of: strings.Repeat(string(anyRole), len(c.agents))}
	}
	return i
}

// with adds an operation of a step on roles.
func (c *conversation) with(o *op, step func(p *Partition, r roles) (roles, bool)) {
	c.add(stepping(o, step))
}

// sends adds a message that is in the database.
func (c *conversation) sends(k *call, m message) {
	begin, end := k.interval()
	by := c.agent(m.sender)
	what := fmt.Sprintf("%s sends message %d", c.h.name(m.sender), m.number)
	o := &op{begin: begin, end: end, what: what, appended: m.number}
	if c.Kind == "private chat" { // the block is looked for at some time of the call, the message appears at another one
		to := c.agent(k.asked.RecipientAgentID)
		c.with(&op{begin: begin, end: end, what: what + ": neither has blocked the other"},
			func(_ *Partition, r roles) (roles, bool) {
				r, one := r.is(by, open)
				r, two := r.is(to, open)
				return r, one && two
			})
	}
	c.with(o, func(p *Partition, r roles) (roles, bool) {
		possible := true
		if c.Kind == "group chat" {
			r, possible = r.is(by, member)
		}
		last, appended := p.append(r.last, m.number-1, m.number)
		r.last = last
		return r, possible && appended
	})
}

// lost adds a message that was acknowledged and is not in the database.
func (c *conversation) lost(k *call, why string) {
	begin, end := k.interval()
	c.with(&op{begin: begin, end: end, what: fmt.Sprintf("%s sends %q, %s", c.h.name(c.h.by(k)), k.asked.Content, why)},
		func(_ *Partition, r roles) (roles, bool) { return r, false })
}

// refusals are the roles with which a call is refused.
var refusals = map[string]byte{"not_member": outsider, "banned": banned}

// refused adds a call that was refused for the caller's role.
func (c *conversation) refused(k *call, code string) {
	begin, end := k.interval()
	by, role := c.agent(c.h.by(k)), refusals[code]
	if code == "blocked" || code == "blocking" { // by the other one, or by the caller
		role = blocking
		if code == "blocked" {
			by = c.agent(k.asked.RecipientAgentID)
		}
	}
	c.with(&op{begin: begin, end: end, what: fmt.Sprintf("%s by %s is refused: %s", k.path, c.h.name(c.h.by(k)), code)},
		func(_ *Partition, r roles) (roles, bool) { return r.is(by, role) })
}

// lists adds a page with the newest messages.
func (c *conversation) lists(k *call, facts *Facts) {
	begin, end := k.interval()
	by, total, name := c.agent(c.h.by(k)), k.response.Total, c.h.name(c.h.by(k))
	whole := int64(len(k.response.Messages)) == min(total, k.asked.N)
	for i, shown := range k.response.Messages {
		m := facts.byID[shown.MessageID]
		whole = whole && m.conversation == c.Name && m.number == total-int64(i)
	}
	what := fmt.Sprintf("%s reads %d messages", name, total)
	if !whole {
		what += ", but the page has others than the newest"
	}
	c.with(&op{begin: begin, end: end, what: what}, func(p *Partition, r roles) (roles, bool) {
		possible := true
		if c.Kind == "group chat" {
			r, possible = r.is(by, member)
		}
		possible = possible && whole && p.reach(r.last, total)
		r.last = total
		return r, possible
	})
}

// changes adds a change of a role. It changes nothing if the agent has another role than the change is for, or it is not known which.
func (c *conversation) changes(k *call, one change) {
	begin, end := k.interval()
	of := c.agent(one.agent)
	c.with(&op{begin: begin, end: end, indefinite: !k.ok(), what: c.h.tell(k, one)}, func(_ *Partition, r roles) (roles, bool) {
		switch now := r.of[of]; {
		case one.kind == "added" && now == banned: // it is refused
			return r, false
		case one.kind == "removed" && now != member, one.kind == "unbanned" && now != banned:
			return r, true
		}
		return r.with(of, one.role), true
	})
}
