package agent

import (
	"regexp"
	"slices"
	"strings"
)

// Face is how a face of the table writes actions and parameters, so that errors and hints are in its own words.
type Face interface {
	// Call is how an action is run with arguments, or named if they are nil.
	Call(a *Action, arguments map[string]any) string
	// Param is how a parameter is named.
	Param(p Param) string
}

// CommandLine is the face of the program.
type CommandLine struct{}

func (CommandLine) Call(a *Action, arguments map[string]any) string {
	return "parley " + a.Line(arguments)
}

func (CommandLine) Param(p Param) string {
	switch {
	case p.Arg:
		return "<" + p.Flag() + ">"
	case p.Short == p.Name:
		return "-" + p.Short
	}
	return "--" + p.Flag()
}

// how returns how the caller runs an action.
func (r *Run) how(action string, arguments object) string {
	return commandOf(r.Context).face().Call(ActionNamed(action), arguments)
}

// paramNamed returns a parameter of the action that runs, as the caller names it.
func (r *Run) paramNamed(name string) string {
	command := commandOf(r.Context)
	return command.face().Param(*command.action.param(name))
}

// nameOf returns the action that makes an operation, as the caller names it.
func (r *Run) nameOf(operation string) string {
	return commandOf(r.Context).face().Call(ActionOf(operation), nil)
}

// paramsOf are the parameters that stand for fields of the contract, beside those of [act].
var paramsOf = map[string][]string{
	"content": {"text"}, "reply_to_message_id": {"reply_to"}, "before_message_id": {"before"}, "query": {"words", "grep", "find"},
	"page_size": {"n"}, "chat_id": {"conversation", "to", "name"}, "channel_id": {"conversation", "to", "name"},
	"recipient_agent_id": {"to"}, "agent_id": {"agent", "name"}, "username": {"name"},
}

// paramOf returns the parameter of the action that stands for a field of the contract, or nil.
func (a *Action) paramOf(field string) *Param {
	for _, name := range append([]string{a.fields[field], field}, paramsOf[field]...) {
		if p := a.param(name); p != nil {
			return p
		}
	}
	return nil
}

// What messages of the server, and of this package, name in the words of the contract.
var (
	operationWord = regexp.MustCompile(`\b[a-z]+(?:[A-Z][a-z]+)+\b`)
	callWord      = regexp.MustCompile(`(GET|POST) (?:/[a-z_]+)+`)
	fieldWord     = regexp.MustCompile(`/?\b[a-z]+(?:_[a-z]+)+\b(?: of (?:GET|POST) (?:/[a-z_]+)+)?`)
	firstWord     = regexp.MustCompile(`(^|; )/?([a-z]+)(:| must | has )`)
)

// phrases are what the server says to callers of its interface, and what is said in place of it.
var phrases = strings.NewReplacer("the request does not match the contract: ", "", "add it first with POST /chat/group/edit",
	"add it first with add_member_ids", "send a letter", "write a letter", "send a word", "write a word")

// words returns a message with the names of the face in place of calls, operations and fields. A caller of the action call sent these.
func (c *Command) words(contract Contract, message string) string {
	if c.action != nil && c.action.Name == "call" {
		return message
	}
	name := func(operation string) string {
		if c.action != nil && slices.Contains(c.action.Operations, operation) {
			return c.face().Call(c.action, nil)
		}
		return c.face().Call(ActionOf(operation), nil)
	}
	message = fieldWord.ReplaceAllStringFunc(phrases.Replace(message), c.field)
	message = firstWord.ReplaceAllStringFunc(message, func(text string) string {
		found := firstWord.FindStringSubmatch(text)
		return found[1] + c.field(found[2]) + found[3]
	})
	message = callWord.ReplaceAllStringFunc(message, func(call string) string {
		method, path, _ := strings.Cut(call, " ")
		if o := contract.At(method, path); o != nil {
			return name(o.ID)
		}
		return call
	})
	return operationWord.ReplaceAllStringFunc(message, func(word string) string {
		if contract[word] != nil {
			return name(word)
		}
		return word
	})
}

// field returns the parameter of the running action in place of a field of the contract, or the action of the same tool that sends it.
func (c *Command) field(text string) string {
	field, _, _ := strings.Cut(strings.TrimPrefix(text, "/"), " ")
	if c.action == nil {
		return text
	}
	if p := c.action.paramOf(field); p != nil {
		return c.face().Param(*p)
	}
	for _, other := range Actions {
		if other.Tool == c.action.Tool && other.fields[field] != "" {
			return c.face().Call(other, nil)
		}
	}
	return text
}
