package consistency

import (
	"fmt"
	"maps"
)

// placeKeys makes a history of each agent's key. A server may accept a key for StaleKey after another server has replaced it: then it is
// as if the call had begun so much earlier. It rejects no key that is valid. A key is valid during one period, so of its accepted uses
// only the one that ends first and the one that begins last count: with all of them, the check of a stale key takes minutes.
func (h *history) placeKeys() {
	replacedBy, all := map[string]map[string]bool{}, map[string]*Partition{}
	numbers, rotations := map[string]int{}, map[[2]string]*op{}
	returned := map[int]bool{} // new keys
	number := func(key string) int {
		if numbers[key] == 0 {
			numbers[key] = len(numbers) + 1
		}
		return numbers[key]
	}
	of := func(key string) *Partition {
		agent := h.agents[key]
		if agent == "" {
			return nil
		}
		if all[agent] == nil {
			all[agent] = &Partition{Kind: "key", Name: "of " + h.name(agent), initial: 0}
			h.done = append(h.done, all[agent])
		}
		return all[agent]
	}
	for _, k := range h.calls {
		p := of(k.key)
		if k.path != rotatePath || p == nil || !k.ok() && !k.unknown() {
			continue
		}
		begin, end := k.interval()
		if replacedBy[k.key] == nil {
			replacedBy[k.key] = map[string]bool{}
		}
		maps.Copy(replacedBy[k.key], k.servers())
		if repeated := rotations[[2]string{k.key, k.response.APIKey}]; k.ok() && repeated != nil { // the wallet gets the same response again
			repeated.begin, repeated.end = min(repeated.begin, begin), min(repeated.end, end)
			continue
		}
		from, to, again := number(k.key), -1, false
		o := &op{begin: begin, end: end, indefinite: !k.ok(), what: fmt.Sprintf("key %d is replaced, and the response is lost", from)}
		if k.ok() {
			to = number(k.response.APIKey)
			again, returned[to] = returned[to], true
			o.what = fmt.Sprintf("key %d is replaced by key %d at %s", from, to, servers(k.servers()))
		}
		o.step = func(_ *Partition, state any) (any, bool) {
			if state == from || state == 0 {
				return to, !again // no key becomes valid again
			}
			return state, !k.ok()
		}
		rotations[[2]string{k.key, k.response.APIKey}] = o
		p.add(o)
	}
	first, last := map[string]*op{}, map[string]*op{} // accepted uses of each key
	for _, u := range h.uses {
		p := of(u.key)
		if p == nil {
			continue
		}
		key := number(u.key)
		o := &op{begin: u.begin, end: u.end, what: fmt.Sprintf("key %d is accepted at %s", key, u.server)}
		if by := replacedBy[u.key]; u.status == 200 && by != nil && (len(by) > 1 || !by[u.server]) {
			o.begin -= int64(StaleKey)
			o.what += fmt.Sprintf(" (may be %s late)", StaleKey)
		}
		if u.status != 200 {
			o.what = fmt.Sprintf("key %d is rejected at %s", key, u.server)
		}
		o.step = func(_ *Partition, state any) (any, bool) {
			switch {
			case u.status == 200 && state == 0:
				return key, true
			case u.status == 200:
				return state, state == key
			}
			return state, state != key
		}
		if u.status != 200 {
			p.add(o)
			continue
		}
		if first[u.key] == nil || o.end < first[u.key].end {
			first[u.key] = o
		}
		if last[u.key] == nil || o.begin > last[u.key].begin {
			last[u.key] = o
		}
	}
	for key, o := range first {
		of(key).add(o)
		if last[key] != o {
			of(key).add(last[key])
		}
	}
}

func servers(all map[string]bool) string {
	if len(all) != 1 {
		return "one of several servers"
	}
	for one := range all {
		return one
	}
	return ""
}
