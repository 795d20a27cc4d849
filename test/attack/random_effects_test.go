//go:build attack

package attack

import (
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// checkEffectsOfAll: what there is only once for each request is there once for each that was delivered, and nothing else is.
func (r *randomRun) checkEffectsOfAll() {
	there := map[string]int{}
	r.EachRow(func(rows pgx.Rows) error {
		var kind, content string
		err := rows.Scan(&kind, &content)
		markers := markerForm.FindAllString(content, -1)
		if len(markers) != 1 {
			r.offence("a message that nobody sent: %.200q", content)
			return err
		}
		there[kind+" "+markers[0]]++
		return err
	}, "SELECT c.kind, m.content FROM messages m JOIN conversations c ON c.id = m.conversation_id")
	r.EachRow(func(rows pgx.Rows) error {
		var effect string
		err := rows.Scan(&effect)
		there[effect]++
		return err
	}, "SELECT 'agent ' || username FROM agents UNION ALL SELECT kind || ' ' || name FROM conversations WHERE kind <> 'private'")
	r.attribute(there)
	for effect, n := range there {
		r.offence("%q is there %d times more often than it was delivered", effect, n)
	}
}

// attribute takes from there the effect of each delivered payment. Of two requests with one payment one was delivered, and the other
// may have been paid for anew; then the effects of the other payments tell which.
func (r *randomRun) attribute(there map[string]int) {
	left := slices.DeleteFunc(slices.Clone(r.payments), func(p *payment) bool { return !p.row.served() })
	for len(left) > 0 {
		unclear := slices.DeleteFunc(slices.Clone(left), func(p *payment) bool {
			possible, claimed := r.effectsOf(p, there)
			if len(claimed) == 1 {
				if there[claimed[0]]--; there[claimed[0]] == 0 {
					delete(there, claimed[0])
				}
			}
			return len(possible) == 0 || len(claimed) == 1
		})
		if len(unclear) == len(left) {
			for _, p := range unclear {
				possible, claimed := r.effectsOf(p, there)
				r.wrong(p, nil, "delivered, and not one of its effects is there", possible, claimed)
			}
			return
		}
		left = unclear
	}
}

// deliverable returns the requests of which one is what the payment was delivered for. At most one payment of a family is taken, and what
// any of them was sent with may redeem it.
func (p *payment) deliverable() (requests []*request) {
	for _, member := range p.family.payments {
		for _, q := range member.requests {
			if q.id == p.row.operation && !slices.Contains(requests, q) {
				requests = append(requests, q)
			}
		}
	}
	return requests
}

// effectsOf returns the effects that a delivered payment may have had, and those of them that are there.
func (r *randomRun) effectsOf(p *payment, there map[string]int) (possible, claimed []string) {
	for _, q := range p.deliverable() {
		if q.effect != "" && !slices.Contains(possible, q.effect) {
			if possible = append(possible, q.effect); there[q.effect] > 0 {
				claimed = append(claimed, q.effect)
			}
		}
	}
	if len(possible) > 0 && len(claimed) == 0 { // redeemed by a fresh payment of its wallet
		for _, q := range r.proofs[[2]string{p.purse.address, p.row.operation}] {
			if there[q.effect] > 0 && len(claimed) == 0 {
				claimed = append(claimed, q.effect)
			}
		}
	}
	return possible, claimed
}

// checkPlaces: each place that requests change has a value that a delivered request gave it, and the value that it has by
// itself only if none did.
func (r *randomRun) checkPlaces() {
	type rule struct {
		values  map[string]bool
		certain bool
	}
	rules := map[string]*rule{}
	for _, p := range r.payments {
		if !p.row.served() {
			continue
		}
		done := p.deliverable()
		for _, q := range done {
			for _, t := range q.touches {
				if rules[t.place] == nil {
					rules[t.place] = &rule{values: map[string]bool{}}
				}
				rules[t.place].values[t.value] = true
				// Of two requests with one payment one was delivered; which, the ledger says only by its fingerprint.
				rules[t.place].certain = rules[t.place].certain || len(done) == 1
			}
		}
	}
	for _, requests := range r.proofs {
		for _, q := range requests {
			for _, t := range q.touches { // perhaps
				if rules[t.place] == nil {
					rules[t.place] = &rule{values: map[string]bool{}}
				}
				rules[t.place].values[t.value] = true
			}
		}
	}
	has := map[string]string{}
	r.EachRow(func(rows pgx.Rows) error {
		var place, value string
		err := rows.Scan(&place, &value)
		if marker := markerForm.FindString(value); strings.HasPrefix(place, "about ") && marker != "" {
			value = marker
		}
		if marker := markerForm.FindString(place); marker != "" { // where a message's whole content stands for it
			before, _, _ := strings.Cut(place, "confidential ")
			_, after, _ := strings.Cut(place, "\x01")
			place = strings.TrimSpace(before + marker + " " + after)
		}
		has[place] = value
		return err
	}, `SELECT 'about agent ' || username, description FROM agents
		UNION ALL SELECT 'username ' || username, 'yes' FROM agents
		UNION ALL SELECT 'username ' || username, 'yes' FROM registrations
		UNION ALL SELECT 'about ' || name, coalesce(description, '') FROM conversations WHERE kind <> 'private'
		UNION ALL SELECT 'admin ' || name, username FROM conversations c JOIN agents a ON a.id = c.admin_id
		UNION ALL SELECT 'deleted ' || name, 'yes' FROM conversations WHERE deleted_at IS NOT NULL
		UNION ALL SELECT 'view ' || name || ' ' || username, status FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			JOIN agents a ON a.id = m.agent_id WHERE kind <> 'private'
		UNION ALL SELECT 'block ' || b.username || ' ' || d.username, 'yes' FROM blocks JOIN agents b ON b.id = blocker_id
			JOIN agents d ON d.id = blocked_id
		UNION ALL SELECT 'reaction ' || m.content || E'\x01' || username, emoji FROM reactions x JOIN messages m USING (conversation_id, number)
			JOIN agents a ON a.id = x.agent_id
		UNION ALL SELECT 'pin ' || name || ' ' || m.content, 'yes' FROM conversations c, unnest(pinned) AS pin (id), messages m
			WHERE m.id = pin.id`)
	for _, place := range slices.Sorted(maps.Keys(rules)) {
		rule, value := rules[place], has[place]
		if !rule.values[value] && (rule.certain || value != "") {
			r.offence("%q is %q, but the delivered requests make it one of %q", place, value, slices.Sorted(maps.Keys(rule.values)))
		}
	}
	for place, value := range has {
		if rules[place] == nil {
			r.offence("%q is %q, and no delivered request did that", place, value)
		}
	}
}
