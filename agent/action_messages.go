package agent

import (
	"cmp"
	"context"
	"encoding/json"
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
	content := r.text("text")
	if strings.TrimSpace(content) == "" {
		return nil, Usagef("the message is empty")
	}
	to, err := r.resolve("to")
	if err != nil {
		return nil, err
	}
	of := OperationsOf[to.Kind]
	sent, err := r.call(of.Send, to.ID, r.copyTo(object{of.To: to.ID, "content": content},
		map[string]string{"reply_to": "reply_to_message_id"}))
	if err != nil {
		return nil, err
	}
	id, _ := sent["message_id"].(string)
	return newValue(sent).line("sent to %s: %s", to, PlainWord(id)), nil
}

func runReact(r *Run) (*Value, error) {
	arguments := object{"message_id": r.text("message_id")}
	if arg[bool](r, "remove") {
		body, err := r.call("removeReaction", "", arguments)
		return newValue(body).line("removed the reaction"), err
	}
	if !emoji.Is(r.text("emoji"), 32) {
		return nil, Usagef("emoji is exactly one emoji; nothing was paid")
	}
	arguments["emoji"] = r.text("emoji")
	body, err := r.call("reactToMessage", "", arguments)
	return newValue(body).line("reacted with %s", r.text("emoji")), err
}

// pageSize and historySize are how many messages are shown if nobody says it. In a limited room each has at least MinShown characters, or
// all.
const (
	pageSize    = 50
	historySize = 20
	MinShown    = 512
)

// count returns how many messages are wanted.
func (r *Run) count(otherwise int) int {
	n := arg[int](r, "n")
	if n == 0 {
		n = otherwise
	}
	if r.Room > 0 {
		n = min(n, r.Room/MinShown)
	}
	return n
}

func runInbox(r *Run) (*Value, error) {
	arguments := object{"page_size": r.count(pageSize)}
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
	messages, err := r.showMessages(v, body["messages"], "")
	if err != nil {
		return nil, err
	}
	notices, _ := body["notices"].([]any)
	for _, one := range notices {
		n, _ := one.(object)
		name, _ := n["source_name"].(string)
		v.line("notice: %s by %s in %s %s at %s", word(n, "type"), word(n, "actor_username"), VisibleName(name), word(n, "source_id"), at(n))
	}
	if len(messages)+len(notices) == 0 {
		v.line("no messages")
	}
	if total, _ := body["total_unread"].(float64); int(total) > len(messages) {
		v.line("%d more are unread: %s again", int(total)-len(messages), r.how("inbox", nil))
	}
	return v, nil
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
		return nil, Usagef("grep is no RE2 regular expression; find takes plain text; nothing was paid")
	}
	if r.text("conversation") == "" {
		return nil, Usagef("conversation is missing: %s", toParam.Help)
	}
	with, err := r.resolve("conversation")
	if err != nil {
		return nil, err
	}
	id := with.ID
	if with.Kind == KindAgent {
		if id, err = r.Chat(r.Context, with); err != nil {
			return nil, err
		}
	}
	of := OperationsOf[with.Kind]
	operation, n := of.List, r.count(historySize)
	arguments := r.copyTo(object{of.Conversation: id}, map[string]string{"before": "before_message_id"})
	if query != "" {
		operation, n, arguments["query"], arguments["literal"] = of.Search, r.count(pageSize), query, literal
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

// readOne shows the text of a stored message from an offset.
func (r *Run) readOne(id string) (*Value, error) {
	operations := []string{pollOperation}
	for _, of := range OperationsOf {
		operations = append(operations, of.List, of.Search)
	}
	responses, err := r.Responses(r.Context, operations...)
	if err != nil {
		return nil, fmt.Errorf("read the stored messages: %w", err)
	}
	for _, response := range responses {
		var page struct{ Messages []any }
		_ = json.Unmarshal(response.Body, &page) // a response of another version has none
		for _, one := range page.Messages {
			m, _ := one.(object)
			if word(m, "message_id") != id {
				continue
			}
			content, _ := m["content"].(string)
			if length := utf8.RuneCountInString(content); arg[int](r, "offset") >= max(length, 1) {
				return nil, Usagef("offset is past the end: the message has %d characters", length)
			}
			v := newValue(object{"messages": []any{m}})
			_, err = r.showMessages(v, v.Data["messages"], "")
			return v, err
		}
	}
	return nil, Usagef("no stored message has the id %s; read its conversation", VisibleName(id))
}

// word returns a field that the contract limits to letters, digits and the like.
func word(fields object, name string) string {
	text, _ := fields[name].(string)
	return PlainWord(text)
}

func at(fields object) string {
	created, _ := fields["created_at"].(float64)
	return Time(created).Format(time.DateTime)
}

// share returns how many characters of each message are shown in the room: short ones leave theirs to others.
func (r *Run) share(messages []any) int {
	var lengths []int
	for _, one := range messages {
		m, _ := one.(object)
		content, _ := m["content"].(string)
		lengths = append(lengths, utf8.RuneCountInString(content)-arg[int](r, "offset"))
	}
	slices.Sort(lengths)
	left := r.Room
	for i, length := range lengths {
		if share := left / (len(lengths) - i); r.Room > 0 && length > share {
			return share
		}
		left -= length
	}
	return maxContent
}

// maxContent is longer than any message.
const maxContent = 1 << 20

// cut returns at most share characters of a message, from the offset that the caller gave, and what to say of that. The message keeps them.
func (r *Run) cut(m object, share int) (content, said string) {
	content, _ = m["content"].(string)
	characters, from := []rune(content), arg[int](r, "offset")
	to := min(from+share, len(characters))
	if from == 0 && to == len(characters) {
		return content, ""
	}
	content = string(characters[min(from, to):to])
	m["content"], m["characters"], m["offset"] = content, len(characters), from
	said = fmt.Sprintf("  (characters %d to %d of %d", from, to-1, len(characters))
	if to < len(characters) {
		m["next_offset"] = to
		said += fmt.Sprintf("; next offset %d", to)
	}
	return content, said + ")"
}

// showMessages adds the messages of a response to a value. If there is little room, their texts are cut, also in the response.
func (r *Run) showMessages(v *Value, list any, in string) ([]any, error) {
	messages, _ := list.([]any)
	contacts, err := r.Contacts()
	if err != nil {
		return nil, err
	}
	own, err := r.Own(r.Context)
	if err != nil {
		return nil, err
	}
	share, rest := r.share(messages), ""
	for _, one := range messages {
		m, _ := one.(object)
		head := word(m, "sender_username")
		if own != nil && m["sender_id"] == own.AgentID {
			head = "I"
		}
		if source := word(m, "source_id"); source != "" && m["source_type"] != string(client.SourceTypePrivateChat) && source != in {
			head += " in " + contacts.NameOf(source)
		}
		head += "  " + at(m) + "  " + word(m, "message_id")
		if answered := word(m, "reply_to_message_id"); answered != "" {
			head += "  answers " + answered
		}
		if about, ok := m["about"].(object); ok { // only the service writes such messages
			head += "  the service says: " + strings.ReplaceAll(word(about, "type"), "_", " ") + " " + word(about, "source_id")
		}
		content, said := r.cut(m, share)
		if next, more := m["next_offset"]; more {
			rest = r.how("read", object{"message_id": word(m, "message_id"), "offset": next})
		}
		v.Parts = append(v.Parts, Part{head + said, content})
		if counts, ok := m["reaction_counts"].(object); ok && len(counts) > 0 {
			var words []string
			for _, one := range slices.Sorted(maps.Keys(counts)) {
				words = append(words, fmt.Sprintf("%s %v", VisibleName(one), counts[one]))
			}
			v.line("  reactions: %s", strings.Join(words, ", "))
		}
	}
	if rest != "" {
		v.line("the rest of a message is free, such as: %s", rest)
	}
	return messages, nil
}

func runFind(r *Run) (*Value, error) {
	kind := r.text("kind")
	if kind == "" {
		kind = "agents"
	}
	operation := map[string]string{"agents": "searchAgents", "groups": "searchGroups", "channels": "searchChannels"}[kind]
	body, err := r.call(operation, "", r.copyTo(object{"page_size": 10, "query": r.text("words")},
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
	if id := r.text("name"); of.Kind == KindAgent && kindOf(id) == KindGroup && isID(id) { // the private chat with the agent
		return r.show("getPrivateChat", of, object{"chat_id": id})
	}
	return r.info(of)
}

// info shows a contact as the server describes it.
func (r *Run) info(of Contact) (*Value, error) {
	operations := OperationsOf[of.Kind]
	return r.show(operations.Info, of, object{operations.ID: of.ID})
}

// show makes a call about a contact and shows its response. If the look-up of its name made the call, its response is shown.
func (r *Run) show(operation string, of Contact, arguments object) (v *Value, err error) {
	var body object
	if of.shown != nil && of.shown.Operation == operation {
		body, err = r.decode(of.shown)
	} else {
		body, err = r.call(operation, of.ID, arguments)
	}
	if err != nil {
		return nil, err
	}
	v = newValue(body).describe(body)
	if pinned, ok := body["pinned_messages"].([]any); ok && len(pinned) > 0 {
		v.line("pinned:")
		_, err = r.showMessages(v, pinned, "")
	}
	return v, err
}
