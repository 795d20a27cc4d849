package agent

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// act is an action that makes one call.
type act struct {
	// kind is that of the conversation that the call is about, or "".
	kind      string
	operation string
	// args are the contract's arguments by parameter. Names of agents become ids.
	args map[string]string
	// said is the line of the value, before the name of the conversation.
	said string
	// final is the question before what cannot be taken back, or "".
	final string
}

// describing are the arguments of what has a name and a description.
var describing = map[string]string{"name": "name", "description": "description", "discoverable": "is_discoverable",
	"members": "initial_member_ids"}

func (a act) run(r *Run) (*Value, error) {
	if a.final != "" {
		names := strings.NewReplacer("AGENT", VisibleName(r.text("agent")), "IT", VisibleName(r.text("conversation")))
		if err := r.final(names.Replace(a.final)); err != nil {
			return nil, err
		}
	}
	var of Contact
	arguments := object{}
	if a.kind != "" {
		var err error
		if of, err = r.resolve("conversation", a.kind); err != nil {
			return nil, err
		}
		arguments[OperationsOf[a.kind].ID] = of.ID
	}
	if done := doneBefore(of); done != "" && (a.operation == "subscribeChannel" || a.operation == "requestGroupAccess") {
		arguments["success"], arguments["message"] = true, done
		return newValue(arguments).line("%s: %s; nothing was paid for it", of, done), nil
	}
	for _, param := range slices.Sorted(maps.Keys(a.args)) {
		if _, there := r.Args[param]; !there {
			continue
		}
		var err error
		if arguments[a.args[param]], err = r.argument(param, a.args[param]); err != nil {
			return nil, err
		}
	}
	body, err := r.callUnless(r.nameTaken(a, of, arguments), a.operation, of.ID, arguments)
	if err != nil {
		return nil, err
	}
	about := of.String()
	if a.kind == "" {
		about = word(body, "chat_id") + word(body, "channel_id") // of what was created
	}
	return newValue(body).line("%s", strings.TrimSpace(a.said+" "+about)), nil
}

// argument returns the value of an argument of the contract.
func (r *Run) argument(param, name string) (any, error) {
	switch {
	case name == "unpin_message_ids":
		return []any{r.text(param)}, nil
	case strings.HasSuffix(name, "agent_id"):
		found, err := r.resolve(param, KindAgent)
		return found.ID, err
	case !strings.HasSuffix(name, "_ids"):
		return r.Args[param], nil
	}
	ids := []any{}
	for _, username := range arg[[]string](r, param) {
		found, err := r.Resolve(r.Context, username, KindAgent)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found.ID)
	}
	return ids, nil
}

// doneBefore says that a conversation is known to be joined or asked for, or "".
func doneBefore(of Contact) string {
	switch {
	case of.Joined:
		return "joined before"
	case time.Since(of.Asked) < day:
		return "asked for access less than a day ago"
	}
	return ""
}

// nameTaken returns a check that fails if another group chat or channel that the caller named has the name that the call gives: two with
// one name could be addressed by id only.
func (r *Run) nameTaken(a act, of Contact, arguments object) func() error {
	name, _ := arguments["name"].(string)
	kind := a.kind
	switch a.operation {
	case "createGroupChat":
		kind = KindGroup
	case "createChannel":
		kind = KindChannel
	}
	return func() error {
		contacts, err := r.Contacts()
		i := slices.IndexFunc(contacts, func(c Contact) bool {
			return name != "" && c.Kind == kind && c.Name == strings.TrimPrefix(name, "#") && c.Named && c.ID != of.ID
		})
		if err != nil || i < 0 {
			return err
		}
		return failf(ExitRefused, "exists", "", "the %s %s has this name already; nothing was paid. Use that one, or another name", kind,
			contacts[i].ID)
	}
}

// maxContacts is the number of contacts that a model is shown.
const maxContacts = 100

func runContacts(r *Run) (*Value, error) {
	contacts, err := r.Contacts()
	if err != nil {
		return nil, err
	}
	list := []any{}
	v := newValue(object{"total": len(contacts)})
	for i, c := range contacts {
		if r.Room > 0 && i == maxContacts {
			v.line("%d more are not shown", len(contacts)-i)
			break
		}
		one := object{"name": c.Name, OperationsOf[c.Kind].ID: c.ID, "kind": c.Kind, "joined": c.Joined, "blocked": c.Blocked}
		if c.Chat != "" {
			one["chat_id"] = c.Chat
		}
		list = append(list, one)
		v.line("%s", strings.TrimSpace(c.String()+"  "+c.Kind+"  "+c.ID+map[bool]string{true: "  blocked"}[c.Blocked]))
	}
	if len(contacts) == 0 {
		v.line("none yet: whom you write to and who writes to you is listed here")
	}
	v.Data["contacts"] = list
	return v, nil
}
