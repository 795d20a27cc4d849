package consistency

// change is what a call does to the role of an agent.
type change struct {
	agent string
	role  byte
	kind  string // of the notice, if there is one
}

var verbs = map[string]string{"added": "adds", "removed": "removes", "banned": "bans", "unbanned": "lifts the ban of", "left": "leaves",
	"blocked": "blocks the other one", "unblocked": "unblocks the other one"}

// changesOf returns the changes of a call, in their order.
func (h *history) changesOf(k *call) (all []change) {
	of := func(agents []string, role byte, kind string) {
		for _, agent := range agents {
			all = append(all, change{agent, role, kind})
		}
	}
	caller := []string{h.by(k)}
	switch k.path {
	case "/chat/group/edit":
		of(k.asked.Remove, outsider, "removed")
		of(k.asked.Ban, banned, "banned")
		of(k.asked.Unban, outsider, "unbanned")
		of(k.asked.Add, member, "added")
	case "/chat/group/leave":
		of(caller, outsider, "left")
	case "/agent/block":
		of(caller, blocking, "blocked")
	case "/agent/unblock":
		of(caller, open, "unblocked")
	}
	return all
}

// tell describes a change.
func (h *history) tell(k *call, one change) string {
	text := h.name(h.by(k)) + " " + verbs[one.kind]
	if one.agent != h.by(k) {
		text += " " + h.name(one.agent)
	}
	return text
}
