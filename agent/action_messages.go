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

// pageSize and historySize are how many messages are shown if nobody says it. A model is shown at most maxShown.
const (
	pageSize    = 50
	historySize = 20
	maxShown    = 50
)

// count returns how many messages are wanted.
func (r *Run) count(otherwise int) int {
	n := arg[int](r, "n")
	if n == 0 {
		n = otherwise
	}
	if r.Room > 0 {
		n = min(n, maxShown)
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
		v.line("notice: %s by %s in %s at %s", word(n, "type"), word(n, "actor_username"), word(n, "source_id"), at(n))
		name, _ := n["source_name"].(string)
		v.foreign("  its name:", name)
	}
	if len(messages)+len(notices) == 0 {
		v.line("no messages")
	}
	if total, _ := body["total_unread"].(float64); int(total) > len(messages) {
		v.line("%d more are unread", int(total)-len(messages))
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
		operation, n, arguments["query"], arguments["literal"] = of.Search, r.count(maxShown), query, literal
	} else {
		arguments["n"], arguments["mark_read"] = n, !arg[bool](r, "keep")
	}
	body, err := r.call(operation, with.ID, arguments)
	if err != nil {
		return nil, err
	}
	messages, _ := body["messages"].([]any)
	if len(messages) > n { // a search returns a whole page
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
		v.line("older ones: before %s", next)
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
			characters := []rune(content)
			m["content"] = string(characters[min(arg[int](r, "offset"), len(characters)):])
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
	for _, one := range messages {
		m, _ := one.(object)
		content, _ := m["content"].(string)
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
		if length := utf8.RuneCountInString(content); r.Room > 0 && length > r.Room/len(messages) {
			content = string([]rune(content)[:r.Room/len(messages)])
			m["content"], m["characters"] = content, length
			head += fmt.Sprintf("  (%d of %d characters; the rest is free: read with message_id and offset)", r.Room/len(messages), length)
		}
		v.Parts = append(v.Parts, Part{head, content})
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
		v.Parts = append(v.Parts, Part{VisibleName(called) + "  " + word(fields, id), description})
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
