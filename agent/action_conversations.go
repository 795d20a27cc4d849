package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
)

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

var describing = map[string]string{"name": "name", "description": "description", "discoverable": "is_discoverable",
	"members": "initial_member_ids"}

func (a act) run(r *Run) (*Value, error) {
	of, arguments, operation := Contact{}, r.copyTo(object{}, a.args), r.contract[a.operation]
	// What does not need a look-up, which is paid, is checked first.
	maps.DeleteFunc(arguments, func(field string, _ any) bool { return strings.Contains(field, "_id") && field != "message_id" })
	err := operation.checkGiven(arguments)
	if err == nil && operation.Price > DearPrice && !r.Confirmed && r.Args["members"] != nil { // to look up members is paid
		err = cmp.Or(r.affords(r.Context, operation.Price), ConfirmDear(a.operation, operation.Price))
	}
	if err == nil && a.kind != "" {
		of, err = r.resolve(map[bool]string{true: "agent", false: "conversation"}[a.kind == KindAgent], a.kind)
		arguments[OperationsOf[a.kind].ID] = of.ID
	}
	for _, param := range slices.Sorted(maps.Keys(a.args)) {
		_, there := r.Args[param]
		if _, plain := arguments[a.args[param]]; err == nil && there && !plain {
			arguments[a.args[param]], err = r.argument(param, a.args[param])
		}
	}
	if err != nil {
		return nil, err
	}
	var agents []string
	for _, one := range arg[[]string](r, "agents") {
		agents = append(agents, VisibleName(one))
	}
	names := strings.NewReplacer("AGENTS", strings.Join(agents, ", "), "AGENT", VisibleName(r.text("agent")),
		"MESSAGE", VisibleName(r.text("message_id")), "NAME", VisibleName(r.text("name")), "IT", of.String())
	if of.Joined && !of.Admin && a.operation == "subscribeChannel" { // somebody may have ended that
		channel := client.Channel{}
		if _, err := r.lookup(r.Context, "getChannel", object{"channel_id": of.ID}, &channel); err != nil {
			return nil, err
		}
		of.Joined = channel.AdminID != nil // which subscribers see
	}
	before, done, err := r.before(a.operation, of, arguments)
	if err != nil || done != "" {
		return said(before, of, "%s", names.Replace(done)), err
	}
	if err := a.confirm(r, of, arguments); err != nil {
		return nil, err
	}
	body, err := r.call(a.operation, of.ID, arguments)
	if err != nil {
		return nil, err
	}
	created := word(body, "chat_id") + word(body, "channel_id")
	return said(body, of, "%s", strings.ReplaceAll(names.Replace(a.said), "CREATED", created)), nil
}

// confirm asks for confirmation of what cannot be taken back. Before, the server says for the price of a look-up whether the conversation
// exists and who its admin is: the human is not asked about what would be refused. Who leaves without a successor can come again.
func (a act) confirm(r *Run, of Contact, arguments object) error {
	next := word(arguments, "new_admin_agent_id") + word(arguments, "successor_agent_id")
	if a.final == "" || r.Confirmed || next == "" && strings.Contains(a.final, "AGENT") {
		return nil
	}
	names, body := OperationsOf[of.Kind], object{}
	_, err := r.lookup(r.Context, names.Info, object{names.ID: of.ID}, &body)
	own, failed := r.Own(r.Context)
	contacts, unknown := r.Contacts()
	if err = cmp.Or(err, failed, unknown); err != nil {
		return err
	}
	called, _ := body["name"].(string)
	contacts = contacts.met(Contact{Name: called, ID: of.ID, Kind: of.Kind})
	if own != nil && body["admin_id"] != own.AgentID {
		return failf(ExitRefused, string(client.ErrorCodeNotAdmin), "", "only the admin of %s can do this; nothing was done",
			contacts.NameOf(of.ID))
	}
	f := failf(ExitLimit, codeConfirm, "", "this is final and must be confirmed; nothing was done")
	f.Question = strings.NewReplacer("IT", contacts.NameOf(of.ID)+" ("+of.ID+")", "AGENT", contacts.NameOf(next)+" ("+next+")").
		Replace(a.final) + " This is final."
	return f
}

func (r *Run) argument(param, name string) (any, error) {
	switch {
	case name == "unpin_message_ids":
		return []any{r.text(param)}, nil
	case strings.HasSuffix(name, "agent_id"):
		found, err := r.resolve(param, KindAgent)
		return found.ID, err
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

// lastChange selects the last response to what this account changed in the agent, conversation or message ?2.
const lastChange = `(SELECT max(number) FROM responses r JOIN calls ON id = call WHERE peer = ?2 AND r.operation IN ('blockAgent',
	'unblockAgent', 'unsubscribeChannel', 'subscribeChannel', 'reactToMessage', 'removeReaction', 'pinGroupMessage', 'editGroupChat',
	'editChannel', 'transferGroupChat', 'transferChannel')) AND seen`

// before returns what is known to be done already, or "", and the fields of the same call before: what is so is not paid for again, nor is
// a conversation that exists and was created with the same arguments.
func (r *Run) before(operation string, of Contact, arguments object) (body object, done string, err error) {
	o := r.contract[operation]
	request := o.hash(arguments, r.Key)
	body = object{}
	found, err := r.ledger.responses(r.Context, "request = ? AND seen ORDER BY number DESC LIMIT 1", request)
	if err == nil && len(found) > 0 {
		_ = json.Unmarshal(found[0].Body, &body) // of another version it has other fields
	}
	last, failed := r.ledger.responses(r.Context, "request = ?1 AND number = "+lastChange, request, of.ID)
	contacts, unknown := r.Contacts()
	created := contacts.ByID(word(body, "chat_id") + word(body, "channel_id"))
	switch {
	case of.Admin && (operation == "subscribeChannel" || operation == "unsubscribeChannel"):
		done = "this account is the admin of IT, and writes and reads it without a subscription"
	case operation == "subscribeChannel":
		done = map[bool]string{true: "this account is subscribed to IT"}[of.Joined]
	case operation == "requestGroupAccess" && !of.Joined && time.Since(of.Asked) < day:
		done = "the admin of IT was asked less than a day ago"
	case created != nil && created.Named && (operation == "createGroupChat" || operation == "createChannel"):
		done = "NAME was created before"
	case strings.HasPrefix(operation, "transfer"): // others can hand it back
	case arguments["add_member_ids"] != nil || arguments["remove_subscriber_ids"] != nil: // they leave, or come again
	case len(last) > 0 && r.Key == "":
		done = "this is so already: it was the last change of IT by this account"
	}
	if done != "" {
		done += "; nothing was paid for it"
	}
	body["success"], body["already"] = true, true
	return body, done, cmp.Or(err, failed, unknown)
}

// runContacts lists the names in the form in which find does.
func runContacts(r *Run) (*Value, error) {
	contacts, err := r.Contacts()
	v := newValue(object{})
	for _, kind := range []string{KindAgent, KindGroup, KindChannel} {
		list := []any{}
		for _, c := range contacts {
			if c.Kind != kind || c.Name == "" || c.Deleted {
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
	v.Data["total"] = len(v.Parts)
	if len(v.Parts) == 0 {
		v.line("no names are known yet: whom this account writes to and who writes to it is listed here")
	}
	return v, err
}
