package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/emoji"
)

func runSend(r *Run) (*Value, error) {
	arguments := r.copyTo(object{}, map[string]string{"text": "content", "reply_to": "reply_to_message_id"})
	if err := r.contract["sendPrivateMessage"].checkGiven(arguments); err != nil {
		return nil, err
	}
	to, err := r.resolve("to")
	if err != nil {
		return nil, err
	}
	of := OperationsOf[to.Kind]
	arguments[of.To] = to.ID
	sent, err := r.call(of.Send, to.ID, arguments)
	if err != nil {
		return nil, err
	}
	return said(sent, to, "sent to %s: %s", to, word(sent, "message_id")), nil
}

func runReact(r *Run) (*Value, error) {
	id := r.text("message_id")
	operation, arguments, done := "removeReaction", object{"message_id": id}, "removed the reaction to "+PlainWord(id)
	if !arg[bool](r, "remove") {
		if !emoji.Is(r.text("emoji"), 32) {
			return nil, Usagef("%s must be exactly one emoji, such as 👍, or give %s", r.paramNamed("emoji"), r.paramNamed("remove"))
		}
		operation, arguments["emoji"], done = "reactToMessage", r.text("emoji"), "reacted to "+PlainWord(id)+" with "+r.text("emoji")
	}
	body, known, err := r.before(operation, Contact{ID: id}, arguments)
	if err == nil && known == "" {
		body, err = r.call(operation, id, arguments)
	}
	if err != nil {
		return nil, err
	}
	body["message_id"] = id
	return said(body, Contact{}, "%s", cmp.Or(strings.ReplaceAll(known, "IT", PlainWord(id)), done)), nil
}

// pageSize is how many messages are shown if nobody says it. In a limited room each has at least MinShown characters, or all.
const (
	pageSize = 20
	findSize = 10
	MinShown = 512
	maxRoom  = 1 << 30 // for more than any page has
)

func (r *Run) count() int {
	n := cmp.Or(arg[int](r, "n"), pageSize)
	if r.Room > 0 {
		n = min(n, r.Room/MinShown)
	}
	return n
}

func runInbox(r *Run) (*Value, error) {
	arguments := object{"page_size": r.count()}
	wait := time.Duration(arg[int](r, "wait")) * time.Second
	if wait > 0 {
		arguments["wait"] = arg[int](r, "wait")
	}
	page, err := r.Fetch(r.Context, arguments, arg[bool](r, "keep"), cmp.Or(r.Patience, 2*wait+defaultPatience))
	if err != nil {
		return nil, err
	}
	r.results = append(r.results, page.Result)
	return r.inbox(page.Result)
}

// Inbox returns the value of a page of unread messages.
func (a *Agent) Inbox(ctx context.Context, page *Page, room int) (*Value, error) {
	return (&Run{Agent: a, Context: ctx, Room: room}).inbox(page.Result)
}

func (r *Run) inbox(result *Result) (*Value, error) {
	body, err := r.decode(result)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"cursor", "page", "page_size"} { // of the fetch
		delete(body, field)
	}
	v := newValue(body)
	messages, err := r.showUnread(v)
	if err != nil {
		return nil, err
	}
	notices, _ := body["notices"].([]any)
	if len(messages)+len(notices) == 0 {
		v.line("no unread messages")
	}
	if total, _ := body["total_unread"].(float64); int(total) > len(messages) {
		v.line("%d more are unread; the next: %s", int(total)-len(messages), r.how("inbox", object{}))
	}
	return v, nil
}

var noticed = map[string]string{"added": "added this account to", "removed": "removed this account from",
	"banned": "banned this account from", "made_admin": "made this account the admin of", "deleted": "deleted"}

// showUnread adds the messages and the notices of a value.
func (r *Run) showUnread(v *Value) ([]any, error) {
	messages, err := r.showMessages(v, v.Data["messages"], "")
	notices, _ := v.Data["notices"].([]any)
	for _, one := range notices {
		n, _ := one.(object)
		name, _ := n["source_name"].(string)
		did, known := noticed[word(n, "type")]
		if !known {
			did = word(n, "type") + " in"
		}
		v.line("notice: %s %s %s (%s)  %s", word(n, "actor_username"), did, VisibleName(name), word(n, "source_id"), at(n))
	}
	return messages, err
}

func runRead(r *Run) (*Value, error) {
	if id := r.text("message_id"); id != "" {
		return r.readOne(id)
	}
	query, literal := r.text("grep"), false
	if r.text("find") != "" {
		query, literal = r.text("find"), true
	}
	if _, err := syntax.Parse(query, syntax.Perl); err != nil && !literal {
		return nil, Usagef("%s is no RE2 regular expression; plain text: %s; nothing was paid", r.paramNamed("grep"), r.paramNamed("find"))
	}
	if r.text("conversation") == "" {
		return nil, Usagef("name a conversation: %s", toParam.Help)
	}
	with, err := r.resolve("conversation")
	if err != nil {
		return nil, err
	}
	id := with.ID
	if with.Kind == KindAgent {
		if id = with.Chat; id == "" {
			return nil, failf(ExitRefused, string(client.ErrorCodeChatNotFound), "",
				"no private chat with %s is known here; it begins with the first message", with)
		}
	}
	of := OperationsOf[with.Kind]
	operation, n := of.List, r.count()
	arguments := r.copyTo(object{of.Conversation: id}, map[string]string{"before": "before_message_id"})
	if query != "" {
		operation, arguments["query"], arguments["literal"] = of.Search, query, literal
	} else {
		arguments["n"], arguments["mark_read"] = n, !arg[bool](r, "keep")
	}
	body, err := r.call(operation, with.ID, arguments)
	if err != nil {
		return nil, err
	}
	messages, _ := body["messages"].([]any)
	total, _ := body["total"].(float64)                                           // of a conversation, not of a search
	if len(messages) > n || query == "" && len(messages) == n && int(total) > n { // a search returns a whole page
		messages = messages[:n]
		last, _ := messages[n-1].(object)
		body["next_before_message_id"] = last["message_id"]
	}
	slices.Reverse(messages) // the server returns the newest first
	body["messages"], body[of.Conversation] = messages, id
	v := newValue(body)
	if _, err := r.showMessages(v, messages, id); err != nil {
		return nil, err
	}
	if len(messages) == 0 {
		v.line("no messages")
	}
	if matched := word(body, "matched_as"); matched != "" {
		v.line("matched as %s", matched)
	}
	if next := word(body, "next_before_message_id"); next != "" {
		older := maps.Clone(r.Args)
		older["before"] = next
		v.line("older messages: %s", r.how("read", older))
	}
	return v, nil
}

// readOne shows a message that was read before, whole.
func (r *Run) readOne(id string) (*Value, error) {
	found, err := r.ledger.shown(r.Context, "messages", "message_id", id)
	if err != nil || len(found) == 0 {
		return nil, cmp.Or(err, Usagef("no message that was read here has the id %s; read its conversation", VisibleName(id)))
	}
	readableTimes(found[0])
	r.Room = 0
	v := newValue(object{"messages": []any{found[0]}})
	_, err = r.showMessages(v, v.Data["messages"], "")
	return v, err
}

func word(fields object, name string) string {
	text, _ := fields[name].(string)
	return PlainWord(text)
}

// at returns when a message was written, as [readableTimes] has written it.
func at(fields object) string {
	text, _ := fields["created_at"].(string)
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return "" // of a server that lies
	}
	return text
}

// cut returns at most share characters of a message, and what to say of that. The message keeps these.
func (r *Run) cut(m object, share int) (content, said string) {
	content, _ = m["content"].(string)
	length := utf8.RuneCountInString(content)
	if length <= share {
		return content, ""
	}
	content = string([]rune(content)[:share])
	m["content"], m["characters"] = content, length
	return content, fmt.Sprintf("  (%d of %d characters; the whole, free: %s)", share, length,
		r.how("read", object{"message_id": word(m, "message_id")}))
}

// showMessages adds the messages of a response to a value. If there is little room, their texts are cut, also in the response.
func (r *Run) showMessages(v *Value, list any, in string) ([]any, error) {
	messages, _ := list.([]any)
	contacts, err := r.Contacts()
	own, failed := r.Own(r.Context)
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	share, answers := cmp.Or(r.Room, maxRoom)/max(len(messages), 1), object{}
	for _, one := range messages {
		m, _ := one.(object)
		head, mine := word(m, "sender_username"), own != nil && m["sender_id"] == own.AgentID
		if mine {
			head = "I"
		}
		if source := word(m, "source_id"); source != "" && m["source_type"] != string(client.SourceTypePrivateChat) && source != in {
			head += " in " + contacts.NameOf(source)
		}
		head += "  " + at(m) + "  " + word(m, "message_id")
		if answered := word(m, "reply_to_message_id"); answered != "" {
			head += "  answers " + answered
		}
		about, next := r.about(m, contacts)
		content, said := r.cut(m, share)
		v.Parts = append(v.Parts, Part{head + about + said, content})
		if next != "" && !mine {
			answers[word(m, "message_id")], v.Data["next"] = next, answers // beside the texts of others, not in them
			v.line("to add %s: %s", word(m, "sender_username"), next)
		}
		if counts, ok := m["reaction_counts"].(object); ok && len(counts) > 0 {
			var words []string
			for _, one := range slices.Sorted(maps.Keys(counts)) {
				words = append(words, fmt.Sprintf("%s %v", VisibleName(one), counts[one]))
			}
			v.line("  reactions: %s", strings.Join(words, ", "))
		}
	}
	return messages, nil
}

// about says what a message is about that the service wrote in the name of an agent, whose note is in it, and how to go on.
func (r *Run) about(m object, contacts Contacts) (head, next string) {
	about, ok := m["about"].(object)
	if !ok {
		return "", ""
	}
	id, name := word(about, "source_id"), VisibleName(fmt.Sprint(about["source_name"]))
	if known := contacts.ByID(id); known != nil {
		name = known.String()
	}
	switch word(about, "type") {
	case "access_request":
		return fmt.Sprintf("  asks for access to the group chat %s (%s), note:", name, id),
			r.how("group add", object{"conversation": id, "agents": []string{word(m, "sender_username")}})
	case "admin_transfer":
		return fmt.Sprintf("  hands over the admin's role in %s (%s), note:", name, id), ""
	}
	return fmt.Sprintf("  is about %s (%s):", name, id), ""
}

func runFind(r *Run) (*Value, error) {
	kind := r.text("kind")
	if kind == "" {
		kind = "agents"
	}
	operation := map[string]string{"agents": "searchAgents", "groups": "searchGroups", "channels": "searchChannels"}[kind]
	body, err := r.call(operation, "", r.copyTo(object{"page_size": findSize, "query": r.text("words")},
		map[string]string{"page": "page", "n": "page_size"}))
	if err != nil {
		return nil, err
	}
	v := newValue(body)
	found, _ := body[kind].([]any)
	for _, one := range found {
		fields, _ := one.(object)
		name, id := "username", "agent_id"
		if kind != "agents" {
			name, id = "name", map[string]string{"groups": "chat_id", "channels": "channel_id"}[kind]
		}
		called, _ := fields[name].(string)
		description, _ := fields["description"].(string)
		of := Contact{Name: called, Kind: strings.TrimSuffix(kind, "s")}
		v.Parts = append(v.Parts, Part{of.String() + "  " + word(fields, id), description})
	}
	if len(found) == 0 {
		v.line("nothing found")
	}
	if next := max(arg[int](r, "page"), 1) + 1; len(found) == cmp.Or(arg[int](r, "n"), findSize) {
		more := maps.Clone(r.Args)
		more["page"] = next
		v.line("more: %s", r.how("find", more))
	}
	return v, nil
}

func runWho(r *Run) (*Value, error) {
	of, err := r.resolve("name")
	if errors.Is(err, ErrSelf) {
		return runProfile(r)
	}
	if err != nil {
		return nil, err
	}
	return r.info(of)
}

// info shows a contact as the server describes it. If the look-up of its name made the call, its response is shown.
func (r *Run) info(of Contact) (*Value, error) {
	var body object
	var err error
	if operations := OperationsOf[of.Kind]; of.shown != nil && of.shown.Operation == operations.Info {
		body, err = r.decode(of.shown)
	} else {
		body, err = r.call(operations.Info, of.ID, object{operations.ID: of.ID})
	}
	if err != nil {
		return nil, err
	}
	delete(body, "message") // that it was found
	v := Shown(body)
	if pinned, ok := body["pinned_messages"].([]any); ok && len(pinned) > 0 {
		v.line("pinned:")
		_, err = r.showMessages(v, pinned, "")
	}
	return v, err
}
