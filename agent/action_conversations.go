package agent

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// act is an action that makes one call.
type act struct {
	// kind is that of the contact that the call is about, or "".
	kind      string
	operation string
	// args are the contract's arguments by parameter. Names of agents become ids.
	args map[string]string
	// said is a sentence about what was done, in which IT, AGENTS, AGENT and MESSAGE stand for names.
	said string
	// final is the question before what cannot be taken back, or "".
	final string
}

// describing are the arguments of what has a name and a description.
var describing = map[string]string{"name": "name", "description": "description", "discoverable": "is_discoverable",
	"members": "initial_member_ids"}

func (a act) run(r *Run) (*Value, error) {
	of, arguments := Contact{}, object{}
	if a.kind != "" {
		param := "conversation"
		if a.kind == KindAgent {
			param = "agent"
		}
		var err error
		if of, err = r.resolve(param, a.kind); err != nil {
			return nil, err
		}
		arguments[OperationsOf[a.kind].ID] = of.ID
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
	var agents []string
	for _, one := range arg[[]string](r, "agents") {
		agents = append(agents, VisibleName(one))
	}
	names := strings.NewReplacer("AGENTS", strings.Join(agents, ", "), "AGENT", VisibleName(r.text("agent")),
		"MESSAGE", VisibleName(r.text("message_id")), "NAME", VisibleName(r.text("name")), "IT", of.String())
	if done := already(a.operation, of); done != "" {
		return r.before(a.operation, of, arguments, names.Replace(done))
	}
	if a.final != "" {
		if err := r.final(of, names.Replace(a.final)); err != nil {
			return nil, err
		}
	}
	body, err := r.callUnless(r.nameTaken(a, of, arguments), a.operation, of.ID, arguments)
	if exists, ok := errors.AsType[*Failure](err); ok && exists.Code == codeExists && a.kind == "" {
		if v, failed := r.before(a.operation, of, arguments, names.Replace("NAME was created before")); failed != nil || v != nil {
			return v, failed
		}
	}
	if err != nil {
		return nil, err
	}
	created := word(body, "chat_id") + word(body, "channel_id")
	return said(body, of, "%s", strings.ReplaceAll(names.Replace(a.said), "CREATED", created)), nil
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

// already says that a contact is known to be as an operation would make it, or "".
func already(operation string, of Contact) string {
	asks := operation == "requestGroupAccess"
	switch {
	case of.Joined && (asks || operation == "subscribeChannel"):
		return "this account belongs to IT already"
	case asks && time.Since(of.Asked) < day:
		return "the admin of IT was asked less than a day ago"
	case of.Left && operation == "unsubscribeChannel":
		return "this account has left IT already"
	case of.Blocked && operation == "blockAgent":
		return "IT is blocked already"
	case of.Unblocked && operation == "unblockAgent":
		return "IT is not blocked"
	}
	return ""
}

// before returns the value of what is done already, with the fields of the same call before, or nil if it has not the same arguments
// and is about nothing known.
func (r *Run) before(operation string, of Contact, arguments object, done string) (*Value, error) {
	o := r.contract[operation]
	found, err := r.ledger.responses(r.Context, "request = ? ORDER BY number DESC LIMIT 1", o.hash(o.plain(arguments), r.Key))
	if err != nil || len(found) == 0 && of.ID == "" {
		return nil, err
	}
	body := object{"success": true}
	if len(found) > 0 {
		_ = json.Unmarshal(found[0].Body, &body) // of another version it has other fields
	}
	body["already"] = true
	return said(body, of, "%s; nothing was paid for it", done), nil
}

// codeExists is the code of a name that is used.
const codeExists = "exists"

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
		id := contacts[i].ID
		f := failf(ExitRefused, codeExists, "", "the %s %s has the name %s already; nothing was paid. Use that one, or another name", kind, id,
			VisibleName(name)).then(kind+" info", object{"conversation": id})
		f.Data = object{OperationsOf[kind].ID: id}
		return f
	}
}

// runContacts lists the names in the form in which find does.
func runContacts(r *Run) (*Value, error) {
	contacts, err := r.Contacts()
	if err != nil {
		return nil, err
	}
	v := newValue(object{"total": len(contacts)})
	for _, kind := range []string{KindAgent, KindGroup, KindChannel} {
		list := []any{}
		for _, c := range contacts {
			if c.Kind != kind {
				continue
			}
			one, state := object{OperationsOf[kind].ID: c.ID, "name": c.Name, "joined": c.Joined}, map[bool]string{true: "  joined"}[c.Joined]
			if kind == KindAgent {
				one, state = object{"agent_id": c.ID, "username": c.Name, "blocked": c.Blocked}, map[bool]string{true: "  blocked"}[c.Blocked]
				if c.Chat != "" {
					one["chat_id"] = c.Chat
				}
			}
			list = append(list, one)
			v.line("%s  %s%s", c, c.ID, state)
		}
		v.Data[kind+"s"] = list
	}
	if len(contacts) == 0 {
		v.line("no names are known yet: whom this account writes to and who writes to it is listed here")
	}
	return v, nil
}
