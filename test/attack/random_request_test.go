//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-chat/parley/internal/testkit"
)

// operationWeights are the operations that actors want to call.
var operationWeights = []weighted[string]{
	{14, "requestAccount"}, {14, "createAccount"}, {15, "getOwnAgent"}, {20, "editAgent"}, {12, "blockAgent"}, {24, "unblockAgent"},
	{40, "listUnreadMessages"}, {15, "getAgentProfile"}, {18, "rotateKey"},
	{20, "searchAgents"}, {10, "searchGroups"}, {10, "searchChannels"},
	{260, "sendPrivateMessage"}, {10, "getPrivateChat"}, {35, "listPrivateMessages"}, {20, "searchPrivateMessages"},
	{18, "createGroupChat"}, {15, "getGroupChat"}, {75, "editGroupChat"}, {4, "deleteGroupChat"}, {130, "sendGroupMessage"},
	{25, "listGroupMessages"}, {20, "searchGroupMessages"}, {40, "pinGroupMessage"}, {20, "requestGroupAccess"}, {12, "leaveGroupChat"},
	{8, "transferGroupChat"},
	{10, "createChannel"}, {10, "getChannel"}, {10, "editChannel"}, {3, "deleteChannel"}, {40, "sendChannelMessage"}, {30, "subscribeChannel"},
	{15, "unsubscribeChannel"}, {15, "listChannelMessages"}, {10, "searchChannelMessages"}, {4, "transferChannel"},
	{60, "reactToMessage"}, {20, "removeReaction"},
}

// byID are the paid operations by operationId.
var byID = func() map[string]operation {
	all := map[string]operation{}
	for _, o := range operations {
		all[o.id] = o
	}
	return all
}()

// build makes a request for an operationID of an account; a private message where there is nothing to do the operationID with.
func (a *actor) build(operationID string, by *account) *request {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	if q := a.tryBuild(operationID, by); q != nil {
		return q
	}
	if q := a.tryBuild("sendPrivateMessage", by); q != nil {
		return q
	}
	return a.tryBuild("requestAccount", by)
}

// tryBuild is build that returns nil. The run's lock is held.
func (a *actor) tryBuild(operationID string, by *account) *request {
	q := &request{operation: byID[operationID], by: by}
	body := map[string]any{}
	touch := func(place, value string) { q.touches = append(q.touches, touch{place, value}) }
	somebody := func() *account {
		return oneOf(a, a.r.accounts, func(other *account) bool { return by == nil || other.name != by.name })
	}
	other := somebody()
	switch operationID {
	case "requestAccount":
		return a.requestsAccount(q)
	case "createAccount":
		if a.tan == "" {
			return a.requestsAccount(q)
		}
		return a.createsAccount(q)
	case "getOwnAgent":
		q.learn = func(r testkit.Reply) { a.meets(by, r) }
		return q
	case "rotateKey":
		q.learn = func(r testkit.Reply) {
			var reply struct {
				APIKey string `json:"api_key"`
			}
			if json.Unmarshal(r.Body, &reply) != nil || reply.APIKey == "" {
				a.r.offend("actor %s: a rotation returns %v", a.label, r)
			}
			if by.rotations == nil {
				by.rotations = map[*request]bool{}
			}
			// A repetition of an older rotation shows an older key.
			if !by.rotations[q] {
				by.rotations[q], by.key, by.locked = true, reply.APIKey, false
			}
		}
		q.undo = func(testkit.Reply) { by.locked = false }
	case "editAgent":
		text, marker := a.text()
		body["description"] = text
		touch("about agent "+by.name, marker)
	case "listUnreadMessages":
		q.query = fmt.Sprintf("?page_size=%d&mark_read=%v", 1+a.chance.IntN(20), a.chance.IntN(2) == 0)
		return q
	case "searchAgents", "searchGroups", "searchChannels":
		body["query"] = oneOf(a, []string{"Lisbon", "rain hotel", "a", "naïve", "confidential 7"}, nil)
	default:
		if other == nil {
			return nil
		}
		if !a.fill(q, body, by, other) {
			return nil
		}
	}
	return q.with(body)
}

// with gives the request its body.
func (q *request) with(body map[string]any) *request {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	q.body = string(raw)
	return q
}

// oneOf picks one that fits (nil: all do), or the zero value.
func oneOf[T any](a *actor, all []T, fits func(T) bool) (picked T) {
	var candidates []T
	for _, one := range all {
		if fits == nil || fits(one) {
			candidates = append(candidates, one)
		}
	}
	at := a.chance.Uint64() // drawn in any case
	if len(candidates) == 0 {
		return picked
	}
	return candidates[at%uint64(len(candidates))]
}

// draft is a request whose fields are being filled.
type draft struct {
	a         *actor
	q         *request
	body      map[string]any
	by, other *account
	text      string
	marker    string
	anything  bool // what the caller may not do is tried now and then
}

func (d *draft) touch(place, value string) { d.q.touches = append(d.q.touches, touch{place, value}) }

// in picks a conversation of a kind that fits.
func (d *draft) in(kind string, fits func(t *talk) bool) *talk {
	return oneOf(d.a, d.a.r.talks, func(t *talk) bool { return t.kind == kind && (fits == nil || fits(t)) })
}

func (d *draft) sits(t *talk) bool   { return d.anything || t.seats[d.by.name] }
func (d *draft) rules(t *talk) bool  { return d.anything || t.admin == d.by.name }
func (d *draft) speaks(t *talk) bool { return d.sits(t) && len(t.recent) > 0 }

// fill does the operations that need somebody else or a conversation.
func (a *actor) fill(q *request, body map[string]any, by, other *account) bool {
	text, marker := a.text()
	d := &draft{a: a, q: q, body: body, by: by, other: other, text: text, marker: marker, anything: a.chance.IntN(20) == 0}
	fill := d.fillOther
	switch {
	case strings.Contains(q.id, "Group"):
		fill = d.fillGroup
	case strings.Contains(q.id, "Channel"):
		fill = d.fillChannel
	}
	t, ok := fill()
	if !ok {
		return false
	}
	switch q.id {
	case "searchPrivateMessages", "searchGroupMessages", "searchChannelMessages":
		body["query"] = oneOf(a, []string{"lisbon", "rain.*hotel", "(train|東京)", "confidential", "%"}, nil)
	case "listPrivateMessages", "listGroupMessages", "listChannelMessages":
		body["n"] = 1 + a.chance.IntN(30)
	}
	if t != nil {
		q.undo = func(r testkit.Reply) { t.forget(by.name, r.Code) }
	}
	return true
}

// fillOther fills the operations on agents, private chats and reactions.
func (d *draft) fillOther() (t *talk, ok bool) {
	switch d.q.id {
	case "blockAgent":
		d.body["agent_id"] = d.other.id
		d.touch("block "+d.by.name+" "+d.other.name, "yes")
	case "unblockAgent":
		d.body["agent_id"] = d.other.id
		d.touch("block "+d.by.name+" "+d.other.name, "")
	case "getAgentProfile":
		d.body["username"] = d.other.name
	case "sendPrivateMessage":
		d.body["recipient_agent_id"], d.body["content"] = d.other.id, d.text
		d.q.effect = "private " + d.marker
		d.q.learn = func(r testkit.Reply) { d.a.hears(d.a.privateTalk(d.by, d.other, r), r, d.marker) }
	case "getPrivateChat", "listPrivateMessages", "searchPrivateMessages":
		if t = d.in("private", d.sits); t == nil {
			return nil, false
		}
		d.body["chat_id"] = t.id
	case "reactToMessage", "removeReaction":
		if t = oneOf(d.a, d.a.r.talks, d.speaks); t == nil {
			return nil, false
		}
		message, emoji := oneOf(d.a, t.recent, nil), ""
		d.body["message_id"] = message.id
		if d.q.id == "reactToMessage" {
			emoji = oneOf(d.a, []string{"👍", "🎉", "🇵🇹", "👩‍🚀"}, nil)
			d.body["emoji"] = emoji
		}
		d.touch("reaction "+message.marker+" "+d.by.name, emoji)
	default:
		panic("no operationID " + d.q.id)
	}
	return t, true
}

// fillGroup fills the operations on group chats.
func (d *draft) fillGroup() (t *talk, ok bool) {
	switch d.q.id {
	case "createGroupChat":
		return d.create("group"), true
	case "getGroupChat", "listGroupMessages", "searchGroupMessages":
		if t = d.in("group", d.sits); t == nil {
			return nil, false
		}
		d.body["chat_id"] = t.id
	case "sendGroupMessage":
		if t = d.in("group", d.sits); t == nil {
			return nil, false
		}
		d.body["chat_id"], d.body["content"] = t.id, d.text
		d.q.effect = "group " + d.marker
		d.q.learn = func(r testkit.Reply) { d.a.hears(t, r, d.marker) }
	case "editGroupChat":
		if t = d.in("group", d.rules); t == nil {
			return nil, false
		}
		d.a.editsGroup(t, d.body, d.touch, d.text, d.marker)
	case "deleteGroupChat":
		if t = d.in("group", d.rules); t == nil {
			return nil, false
		}
		d.body["chat_id"] = t.id
		d.touch("deleted "+t.name, "yes")
	case "pinGroupMessage":
		if t = d.in("group", func(t *talk) bool { return (d.anything || t.admin == d.by.name) && len(t.recent) > 0 }); t == nil {
			return nil, false
		}
		message := oneOf(d.a, t.recent, nil)
		d.body["chat_id"], d.body["message_id"] = t.id, message.id
		d.touch("pin "+t.name+" "+message.marker, "yes")
	case "requestGroupAccess":
		if t = d.in("group", func(t *talk) bool { return d.anything || !t.seats[d.by.name] }); t == nil {
			return nil, false
		}
		d.body["chat_id"], d.body["message"] = t.id, d.text
		d.q.effect = "private " + d.marker
	case "leaveGroupChat":
		if t = d.in("group", d.sits); t == nil {
			return nil, false
		}
		d.body["chat_id"], d.body["successor_agent_id"] = t.id, d.other.id
		d.touch("view "+t.name+" "+d.by.name, "")
		d.touch("admin "+t.name, d.other.name) // if the caller is the admin
		d.q.learn = func(testkit.Reply) {
			delete(t.seats, d.by.name)
			if t.admin == d.by.name {
				t.admin = d.other.name
			}
		}
	case "transferGroupChat":
		if t = d.in("group", d.rules); t == nil {
			return nil, false
		}
		d.body["chat_id"], d.body["new_admin_agent_id"], d.body["message"] = t.id, d.other.id, d.text
		d.q.effect = "private " + d.marker
		d.touch("admin "+t.name, d.other.name)
		d.q.learn = func(testkit.Reply) { t.admin = d.other.name }
	default:
		panic("no operationID " + d.q.id)
	}
	return t, true
}

// fillChannel fills the operations on channels.
func (d *draft) fillChannel() (t *talk, ok bool) {
	switch d.q.id {
	case "createChannel":
		return d.create("channel"), true
	case "getChannel", "subscribeChannel", "unsubscribeChannel":
		if t = d.in("channel", nil); t == nil {
			return nil, false
		}
		d.body["channel_id"] = t.id
		switch d.q.id {
		case "subscribeChannel":
			d.touch("view "+t.name+" "+d.by.name, "member")
			d.q.learn = func(testkit.Reply) { t.seats[d.by.name] = true }
		case "unsubscribeChannel":
			d.touch("view "+t.name+" "+d.by.name, "")
			d.q.learn = func(testkit.Reply) { delete(t.seats, d.by.name) }
		}
	case "editChannel":
		if t = d.in("channel", d.rules); t == nil {
			return nil, false
		}
		d.body["channel_id"], d.body["description"] = t.id, d.text
		d.touch("about "+t.name, d.marker)
		key := oneOf(d.a, []string{"remove_subscriber_ids", "ban_agent_ids", "unban_agent_ids"}, nil)
		d.body[key] = []string{d.other.id}
		d.touch("view "+t.name+" "+d.other.name, map[string]string{"ban_agent_ids": "banned"}[key])
	case "deleteChannel":
		if t = d.in("channel", d.rules); t == nil {
			return nil, false
		}
		d.body["channel_id"] = t.id
		d.touch("deleted "+t.name, "yes")
	case "sendChannelMessage":
		if t = d.in("channel", d.rules); t == nil {
			return nil, false
		}
		d.body["channel_id"], d.body["content"] = t.id, d.text
		d.q.effect = "channel " + d.marker
		d.q.learn = func(r testkit.Reply) { d.a.hears(t, r, d.marker) }
	case "listChannelMessages", "searchChannelMessages":
		if t = d.in("channel", func(t *talk) bool { return d.anything || t.seats[d.by.name] || t.admin == d.by.name }); t == nil {
			return nil, false
		}
		d.body["channel_id"] = t.id
	case "transferChannel":
		if t = d.in("channel", d.rules); t == nil {
			return nil, false
		}
		d.body["channel_id"], d.body["new_admin_agent_id"], d.body["message"] = t.id, d.other.id, d.text
		d.q.effect = "private " + d.marker
		d.touch("admin "+t.name, d.other.name)
		d.touch("view "+t.name+" "+d.by.name, "member") // who was its admin is a subscriber now
		d.q.learn = func(testkit.Reply) { t.admin = d.other.name }
	default:
		panic("no operationID " + d.q.id)
	}
	return t, true
}

// create fills the creation of a group chat or channel.
func (d *draft) create(kind string) *talk {
	t := &talk{kind: kind, admin: d.by.name, seats: map[string]bool{}}
	t.name = fmt.Sprintf("Talk %x %s %d", d.a.r.seed, d.a.label, d.a.texts)
	d.body["name"], d.body["description"], d.body["is_discoverable"] = t.name, d.text, d.a.chance.IntN(2) == 0
	d.q.effect = t.kind + " " + t.name
	d.touch("about "+t.name, d.marker)
	d.touch("admin "+t.name, d.by.name)
	if t.kind == "group" {
		t.seats[d.by.name] = true
		d.touch("view "+t.name+" "+d.by.name, "member")
		ids := []string{}
		for range d.a.chance.IntN(8) {
			member := oneOf(d.a, d.a.r.accounts, func(o *account) bool { return !t.seats[o.name] })
			if member != nil {
				ids, t.seats[member.name] = append(ids, member.id), true
				d.touch("view "+t.name+" "+member.name, "member")
			}
		}
		d.body["initial_member_ids"] = ids
	}
	d.q.learn = func(r testkit.Reply) {
		var reply struct {
			ChatID    string `json:"chat_id"`
			ChannelID string `json:"channel_id"`
		}
		_ = json.Unmarshal(r.Body, &reply)
		if t.id == "" {
			t.id = reply.ChatID + reply.ChannelID
			d.a.r.talks = append(d.a.r.talks, t)
		}
	}
	return t
}

// editsGroup makes one of the changes that an admin can make.
func (a *actor) editsGroup(t *talk, body map[string]any, touch func(place, value string), text, marker string) {
	body["chat_id"] = t.id
	member := oneOf(a, a.r.accounts, func(o *account) bool { return t.seats[o.name] && o.name != t.admin })
	stranger := oneOf(a, a.r.accounts, func(o *account) bool { return !t.seats[o.name] })
	view := func(list string, o *account, value string) {
		if o != nil {
			body[list] = []string{o.id}
			touch("view "+t.name+" "+o.name, value)
			t.seats[o.name] = value == "member" // not sure, and so somebody will try in vain
		}
	}
	switch a.chance.IntN(8) {
	case 0, 1, 2:
		view("add_member_ids", stranger, "member")
	case 3, 4:
		view("remove_member_ids", member, "")
	case 5:
		view("ban_agent_ids", member, "banned")
	case 6:
		view("unban_agent_ids", stranger, "")
	default:
		var ids []string
		for i, message := range t.recent {
			if i%2 == 0 && len(ids) < 10 {
				ids = append(ids, message.id)
				touch("pin "+t.name+" "+message.marker, "")
			}
		}
		body["unpin_message_ids"] = ids
		if ids == nil {
			delete(body, "unpin_message_ids")
		}
	}
	if len(body) == 1 || a.chance.IntN(3) == 0 {
		body["description"] = text
		touch("about "+t.name, marker)
	}
}

// forget corrects what the actors believed, after a refusal.
func (t *talk) forget(name, code string) {
	switch code {
	case "not_member", "not_subscriber", "banned":
		delete(t.seats, name)
	case "already_member":
		t.seats[name] = true
	case "not_admin":
		if t.admin == name {
			t.admin = ""
		}
	case "deleted":
		t.seats, t.admin, t.recent = map[string]bool{}, "", nil
	}
}

// hears remembers a message.
func (a *actor) hears(t *talk, r testkit.Reply, marker string) {
	var reply struct {
		MessageID string `json:"message_id"`
	}
	if json.Unmarshal(r.Body, &reply) != nil || reply.MessageID == "" {
		a.r.offend("actor %s: a message returns %v", a.label, r)
		return
	}
	if !slices.ContainsFunc(t.recent, func(s said) bool { return s.marker == marker }) {
		t.add(reply.MessageID, marker)
	}
}

// privateTalk is the private chat that a reply names.
func (a *actor) privateTalk(by, other *account, r testkit.Reply) *talk {
	var reply struct {
		ChatID string `json:"chat_id"`
	}
	_ = json.Unmarshal(r.Body, &reply)
	for _, t := range a.r.talks {
		if t.id == reply.ChatID {
			return t
		}
	}
	t := &talk{kind: "private", id: reply.ChatID, seats: map[string]bool{by.name: true, other.name: true}}
	a.r.talks = append(a.r.talks, t)
	return t
}

// requestsAccount asks for a name, sometimes for one that others want as well.
func (a *actor) requestsAccount(q *request) *request {
	q.operation, q.by = byID["requestAccount"], nil
	name := fmt.Sprintf("agent_%s_%d", strings.ReplaceAll(a.label, ".", "_"), a.texts)
	a.texts++
	if a.chance.IntN(3) == 0 && a.label != fmt.Sprintf("%d.0", a.number) {
		name = fmt.Sprintf("wanted_%d", a.chance.IntN(40))
	}
	q.touches = append(q.touches, touch{"username " + name, "yes"})
	q.learn = func(r testkit.Reply) {
		var reply struct{ TAN string }
		if json.Unmarshal(r.Body, &reply) != nil || reply.TAN == "" {
			a.r.offend("actor %s: a request for an account returns %v", a.label, r)
		}
		if !a.r.tans[reply.TAN] { // not a repetition
			a.r.tans[reply.TAN] = true
			a.name, a.tan = name, reply.TAN
		}
	}
	return q.with(map[string]any{"requested_username": name})
}

func (a *actor) createsAccount(q *request) *request {
	q.operation, q.by = byID["createAccount"], nil
	text, marker := a.text()
	name, tan := a.name, a.tan
	q.effect = "agent " + name
	q.touches = append(q.touches, touch{"about agent " + name, marker})
	var made *account
	q.learn = func(r testkit.Reply) {
		var reply struct {
			APIKey string `json:"api_key"`
		}
		if json.Unmarshal(r.Body, &reply) != nil || reply.APIKey == "" {
			a.r.offend("actor %s: the creation of an account returns %v", a.label, r)
		}
		if a.tan == tan {
			a.tan = ""
		}
		if made == nil {
			made = &account{name: name, key: reply.APIKey}
			a.adopt(made)
		}
	}
	q.undo = func(testkit.Reply) {
		if a.tan == tan {
			a.tan = ""
		}
	}
	return q.with(map[string]any{"username": name, "tan": tan, "description": text})
}

// adopt makes an account one of the actor's; the oldest but one gives way.
func (a *actor) adopt(made *account) {
	a.accounts = append(a.accounts, made)
	a.r.made = append(a.r.made, made)
	if len(a.accounts) > 4 {
		a.accounts = slices.Delete(slices.Clone(a.accounts), 1, 2)
	}
}

// meets learns an account's id.
func (a *actor) meets(by *account, r testkit.Reply) {
	var me struct {
		AgentID  string `json:"agent_id"`
		Username string
	}
	if json.Unmarshal(r.Body, &me) != nil || me.AgentID == "" || me.Username != by.name {
		a.r.offend("actor %s: %s sees itself as %v", a.label, by.name, r)
		return
	}
	if by.id == "" {
		by.id = me.AgentID
		a.r.accounts = append(a.r.accounts, by)
	}
}
