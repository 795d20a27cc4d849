//go:build attack

package attack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/parley-chat/parley/internal/testkit"
)

// wish is an operation that actors want to call, and how its request is made.
type wish struct {
	weight int
	id     string
	needs  string                       // another "agent", a talk of a kind, "any" talk; "" if it needs nothing
	fits   func(d *draft, t *talk) bool // which talks; nil: any
	fill   func(d *draft)               // may be nil
}

var wishes = []wish{
	{14, "requestAccount", "", nil, (*draft).requestAccount},
	{14, "createAccount", "", nil, (*draft).createAccount},
	{15, "getOwnAgent", "", nil, (*draft).meetItself},
	{20, "editAgent", "", nil, func(d *draft) { d.describe("agent " + d.by.name) }},
	{12, "blockAgent", "agent", nil, func(d *draft) { d.block("yes") }},
	{24, "unblockAgent", "agent", nil, func(d *draft) { d.block("") }},
	{40, "listUnreadMessages", "", nil, func(d *draft) {
		d.q.query = fmt.Sprintf("?page_size=%d&mark_read=%v", 1+d.a.chance.IntN(20), d.a.chance.IntN(2) == 0)
	}},
	{15, "getAgentProfile", "agent", nil, func(d *draft) { d.body["username"] = d.other.name }},
	{18, "rotateKey", "", nil, (*draft).rotateKey},
	{20, "searchAgents", "", nil, (*draft).searchNames},
	{10, "searchGroups", "", nil, (*draft).searchNames},
	{10, "searchChannels", "", nil, (*draft).searchNames},

	{260, "sendPrivateMessage", "agent", nil, func(d *draft) { d.body["recipient_agent_id"] = d.other.id; d.send() }},
	{10, "getPrivateChat", "private", (*draft).sits, nil},
	{35, "listPrivateMessages", "private", (*draft).sits, (*draft).list},
	{20, "searchPrivateMessages", "private", (*draft).sits, (*draft).search},
	{60, "reactToMessage", "any", (*draft).speaks, func(d *draft) {
		d.react(oneOf(d.a, []string{"👍", "🎉", "🇵🇹", "👩‍🚀"}, nil))
	}},
	{20, "removeReaction", "any", (*draft).speaks, func(d *draft) { d.react("") }},

	{18, "createGroupChat", "agent", nil, func(d *draft) { d.create("group") }},
	{15, "getGroupChat", "group", (*draft).sits, nil},
	{75, "editGroupChat", "group", (*draft).rules, (*draft).editGroup},
	{4, "deleteGroupChat", "group", (*draft).rules, (*draft).delete},
	{130, "sendGroupMessage", "group", (*draft).sits, (*draft).send},
	{25, "listGroupMessages", "group", (*draft).sits, (*draft).list},
	{20, "searchGroupMessages", "group", (*draft).sits, (*draft).search},
	{40, "pinGroupMessage", "group", func(d *draft, t *talk) bool { return d.rules(t) && len(t.recent) > 0 }, (*draft).pin},
	{20, "requestGroupAccess", "group", (*draft).misses, (*draft).note},
	{12, "leaveGroupChat", "group", (*draft).sits, (*draft).leave},
	{8, "transferGroupChat", "group", (*draft).rules, (*draft).transfer},

	{10, "createChannel", "agent", nil, func(d *draft) { d.create("channel") }},
	{10, "getChannel", "channel", nil, nil},
	{10, "editChannel", "channel", (*draft).rules, (*draft).editChannel},
	{3, "deleteChannel", "channel", (*draft).rules, (*draft).delete},
	{40, "sendChannelMessage", "channel", (*draft).rules, (*draft).send},
	{30, "subscribeChannel", "channel", nil, func(d *draft) { d.subscribe(true) }},
	{15, "unsubscribeChannel", "channel", nil, func(d *draft) { d.subscribe(false) }},
	{15, "listChannelMessages", "channel", (*draft).reads, (*draft).list},
	{10, "searchChannelMessages", "channel", (*draft).reads, (*draft).search},
	{4, "transferChannel", "channel", (*draft).rules, func(d *draft) {
		d.transfer()
		d.touch("view "+d.t.name+" "+d.by.name, "member") // who was its admin is a subscriber now
	}},
}

// wanted picks an operation.
func (a *actor) wanted() string {
	weights := make([]weighted[string], len(wishes))
	for i, w := range wishes {
		weights[i] = weighted[string]{w.weight, w.id}
	}
	return pick(a.chance, weights)
}

// byID are the paid operations by operationId.
var byID = func() map[string]operation {
	all := map[string]operation{}
	for _, o := range operations {
		all[o.id] = o
	}
	return all
}()

// draft is a request in the making.
type draft struct {
	a            *actor
	q            *request
	body         map[string]any
	by, other    *account
	t            *talk // that it is about, or nil
	text, marker string
	anything     bool // what the caller may not do is tried now and then
}

// build makes a request for an operationID of an account; a private message where there is nothing to do the operationID with.
func (a *actor) build(operationID string, by *account) *request {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	for _, id := range []string{operationID, "sendPrivateMessage"} {
		if q := a.tryBuild(id, by); q != nil {
			return q
		}
	}
	return a.tryBuild("requestAccount", by)
}

// tryBuild is build that returns nil. The run's lock is held.
func (a *actor) tryBuild(operationID string, by *account) *request {
	wish := wishes[slices.IndexFunc(wishes, func(w wish) bool { return w.id == operationID })]
	d := &draft{a: a, q: &request{operation: byID[operationID], by: by}, body: map[string]any{}, by: by, anything: a.chance.IntN(20) == 0}
	d.text, d.marker = a.text()
	d.other = oneOf(a, a.r.accounts, func(other *account) bool { return by == nil || other.name != by.name })
	switch {
	case wish.needs == "":
	case d.other == nil:
		return nil
	case wish.needs != "agent":
		d.t = oneOf(a, a.r.talks, func(t *talk) bool {
			return (wish.needs == "any" || wish.needs == t.kind) && (wish.fits == nil || wish.fits(d, t))
		})
		if d.t == nil {
			return nil
		}
		if wish.needs != "any" {
			d.body[map[bool]string{true: "channel_id", false: "chat_id"}[wish.needs == "channel"]] = d.t.id
		}
	}
	if wish.fill != nil {
		wish.fill(d)
	}
	if t := d.t; t != nil {
		d.q.undo = func(r testkit.Reply) { t.forget(by.name, r.Code) }
	}
	if d.q.method != http.MethodGet {
		raw, err := json.Marshal(d.body)
		if err != nil {
			panic(err)
		}
		d.q.body = string(raw)
	}
	return d.q
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

func (d *draft) touch(place, value string) { d.q.touches = append(d.q.touches, touch{place, value}) }

func (d *draft) sits(t *talk) bool   { return d.anything || t.seats[d.by.name] }
func (d *draft) rules(t *talk) bool  { return d.anything || t.admin == d.by.name }
func (d *draft) misses(t *talk) bool { return d.anything || !t.seats[d.by.name] }
func (d *draft) reads(t *talk) bool  { return d.sits(t) || d.rules(t) }
func (d *draft) speaks(t *talk) bool { return d.sits(t) && len(t.recent) > 0 }

func (d *draft) list() { d.body["n"] = 1 + d.a.chance.IntN(30) }
func (d *draft) search() {
	d.body["query"] = oneOf(d.a, []string{"lisbon", "rain.*hotel", "(train|東京)", "confidential", "%"}, nil)
}
func (d *draft) searchNames() {
	d.body["query"] = oneOf(d.a, []string{"Lisbon", "rain hotel", "a", "naïve", "confidential 7"}, nil)
}

// describe changes a description.
func (d *draft) describe(whose string) {
	d.body["description"] = d.text
	d.touch("about "+whose, d.marker)
}

func (d *draft) block(value string) {
	d.body["agent_id"] = d.other.id
	d.touch("block "+d.by.name+" "+d.other.name, value)
}

// note has the service write a private message.
func (d *draft) note() {
	d.body["message"] = d.text
	d.q.effect = "private " + d.marker
}

func (d *draft) send() {
	d.body["content"] = d.text
	kind := "private"
	if d.t != nil {
		kind = d.t.kind
	}
	d.q.effect = kind + " " + d.marker
	d.q.learn = func(r testkit.Reply) { d.a.hears(d, r) }
}

func (d *draft) react(emoji string) {
	message := oneOf(d.a, d.t.recent, nil)
	d.body["message_id"] = message.id
	if emoji != "" {
		d.body["emoji"] = emoji
	}
	d.touch("reaction "+message.marker+" "+d.by.name, emoji)
}

func (d *draft) pin() {
	message := oneOf(d.a, d.t.recent, nil)
	d.body["message_id"] = message.id
	d.touch("pin "+d.t.name+" "+message.marker, "yes")
}

func (d *draft) subscribe(on bool) {
	d.touch("view "+d.t.name+" "+d.by.name, map[bool]string{true: "member", false: ""}[on])
	d.q.learn = func(testkit.Reply) { d.t.seats[d.by.name] = on }
}

func (d *draft) delete() { d.touch("deleted "+d.t.name, "yes") }

func (d *draft) leave() {
	d.body["successor_agent_id"] = d.other.id
	d.touch("view "+d.t.name+" "+d.by.name, "")
	d.touch("admin "+d.t.name, d.other.name) // if the caller is the admin
	d.q.learn = func(testkit.Reply) {
		delete(d.t.seats, d.by.name)
		if d.t.admin == d.by.name {
			d.t.admin = d.other.name
		}
	}
}

func (d *draft) transfer() {
	d.note()
	d.body["new_admin_agent_id"] = d.other.id
	d.touch("admin "+d.t.name, d.other.name)
	d.q.learn = func(testkit.Reply) { d.t.admin = d.other.name }
}

func (d *draft) editChannel() {
	d.describe(d.t.name)
	key := oneOf(d.a, []string{"remove_subscriber_ids", "ban_agent_ids", "unban_agent_ids"}, nil)
	d.body[key] = []string{d.other.id}
	d.touch("view "+d.t.name+" "+d.other.name, map[string]string{"ban_agent_ids": "banned"}[key])
}

// create makes a group chat or a channel.
func (d *draft) create(kind string) {
	t := &talk{kind: kind, admin: d.by.name, seats: map[string]bool{}, name: fmt.Sprintf("Talk %x %s %d", d.a.r.seed, d.a.label, d.a.texts)}
	d.t = t
	d.body["name"], d.body["is_discoverable"] = t.name, d.a.chance.IntN(2) == 0
	d.describe(t.name)
	d.q.effect = t.kind + " " + t.name
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
		if t.id == "" {
			t.id = r.Text("chat_id") + r.Text("channel_id")
			d.a.r.talks = append(d.a.r.talks, t)
		}
	}
}

// editGroup makes one of the changes that an admin can make.
func (d *draft) editGroup() {
	t := d.t
	member := oneOf(d.a, d.a.r.accounts, func(o *account) bool { return t.seats[o.name] && o.name != t.admin })
	stranger := oneOf(d.a, d.a.r.accounts, func(o *account) bool { return !t.seats[o.name] })
	view := func(list string, o *account, value string) {
		if o != nil {
			d.body[list] = []string{o.id}
			d.touch("view "+t.name+" "+o.name, value)
			t.seats[o.name] = value == "member" // not sure, and so somebody will try in vain
		}
	}
	switch d.a.chance.IntN(8) {
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
				d.touch("pin "+t.name+" "+message.marker, "")
			}
		}
		if ids != nil {
			d.body["unpin_message_ids"] = ids
		}
	}
	if len(d.body) == 1 || d.a.chance.IntN(3) == 0 {
		d.describe(t.name)
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

// hears remembers a message, and the private chat that it began.
func (a *actor) hears(d *draft, r testkit.Reply) {
	id, t := r.Text("message_id"), d.t
	if id == "" {
		a.r.offend("actor %s: a message returns %v", a.label, r)
		return
	}
	if chat := r.Text("chat_id"); t == nil {
		if i := slices.IndexFunc(a.r.talks, func(t *talk) bool { return t.id == chat }); i >= 0 {
			t = a.r.talks[i]
		} else {
			t = &talk{kind: "private", id: chat, seats: map[string]bool{d.by.name: true, d.other.name: true}}
			a.r.talks = append(a.r.talks, t)
		}
	}
	if !slices.ContainsFunc(t.recent, func(s said) bool { return s.marker == d.marker }) {
		t.add(id, d.marker)
	}
}

// rotateKey learns the new key.
func (d *draft) rotateKey() {
	by, q := d.by, d.q
	q.learn = func(r testkit.Reply) {
		key := r.Text("api_key")
		if key == "" {
			d.a.r.offend("actor %s: a rotation returns %v", d.a.label, r)
		}
		if by.rotations == nil {
			by.rotations = map[*request]bool{}
		}
		// A repetition of an older rotation shows an older key.
		if !by.rotations[q] {
			by.rotations[q], by.key, by.locked = true, key, false
		}
	}
	q.undo = func(testkit.Reply) { by.locked = false }
}

// requestAccount asks for a name, sometimes for one that others want as well.
func (d *draft) requestAccount() {
	a := d.a
	d.q.by = nil
	name := fmt.Sprintf("agent_%s_%d", strings.ReplaceAll(a.label, ".", "_"), a.texts)
	a.texts++
	if a.chance.IntN(3) == 0 && a.label != fmt.Sprintf("%d.0", a.number) {
		name = fmt.Sprintf("wanted_%d", a.chance.IntN(40))
	}
	d.body["requested_username"] = name
	d.touch("username "+name, "yes")
	d.q.learn = func(r testkit.Reply) {
		tan := r.Text("tan")
		if tan == "" {
			a.r.offend("actor %s: a request for an account returns %v", a.label, r)
		}
		if !a.r.tans[tan] { // not a repetition
			a.r.tans[tan] = true
			a.name, a.tan = name, tan
		}
	}
}

// createAccount uses the actor's TAN, or asks for one.
func (d *draft) createAccount() {
	a := d.a
	if a.tan == "" {
		d.q.operation = byID["requestAccount"]
		d.requestAccount()
		return
	}
	d.q.by = nil
	name, tan := a.name, a.tan
	d.body["username"], d.body["tan"] = name, tan
	d.describe("agent " + name)
	d.q.effect = "agent " + name
	used := func() {
		if a.tan == tan {
			a.tan = ""
		}
	}
	var made *account
	d.q.learn = func(r testkit.Reply) {
		used()
		key := r.Text("api_key")
		if key == "" {
			a.r.offend("actor %s: the creation of an account returns %v", a.label, r)
		}
		if made == nil { // one of the actor's from now on; the oldest but one gives way
			made = &account{name: name, key: key}
			a.r.made = append(a.r.made, made)
			if a.accounts = append(a.accounts, made); len(a.accounts) > 4 {
				a.accounts = slices.Delete(slices.Clone(a.accounts), 1, 2)
			}
		}
	}
	d.q.undo = func(testkit.Reply) { used() }
}

// meetItself learns an account's id.
func (d *draft) meetItself() {
	d.q.learn = func(r testkit.Reply) {
		id := r.Text("agent_id")
		if id == "" || r.Text("username") != d.by.name {
			d.a.r.offend("actor %s: %s sees itself as %v", d.a.label, d.by.name, r)
			return
		}
		if d.by.id == "" {
			d.by.id = id
			d.a.r.accounts = append(d.a.r.accounts, d.by)
		}
	}
}
