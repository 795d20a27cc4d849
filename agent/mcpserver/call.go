package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// call is one call of a tool.
type call struct {
	*parleyServer
	*reply
	ctx     context.Context
	request *mcp.CallToolRequest
	in      map[string]any
	seen    []*agent.Result // they reach the client with the reply
	allowed string          // the question to which the human said yes
}

// handler returns what runs a tool. Whatever goes wrong is a result that the model can act on, never an error of the protocol.
func (s *parleyServer) handler(t tool) mcp.ToolHandler {
	schema := t.checked()
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.written()
		asked, answer := s.answerTo(request)
		_, command := agent.BeginCommand(ctx)
		if asked.began != nil {
			command = asked.began
		}
		counted, cancel := context.WithTimeout(command.Continue(ctx), s.patience)
		defer cancel()
		c := &call{parleyServer: s, reply: newReply(), ctx: counted, request: request}
		var err error
		if answer != nil {
			err = c.takeAnswer(asked, answer)
		}
		if err == nil {
			err = c.take(request.Params.Arguments, t.name, schema)
		}
		if err == nil {
			err = t.run(c)
		}
		if err != nil {
			if _, open := errors.AsType[*agent.OpenError](err); open {
				s.resume(context.WithoutCancel(ctx))
			}
			q, ok := c.question(err)
			if ok && answer == nil && c.hasForms() && !c.needsPassphrase(q) {
				return c.ask(q, command), nil
			}
			c.fail(err, q)
		} else if ctx.Err() == nil { // a client that has gone gets the responses at its next attempt
			s.unseen.Store(request.Extra.Header.Get(requestHeader), c.seen)
		}
		c.noteFinished()
		return c.finish(s.money(context.WithoutCancel(ctx), command.Charged())), nil
	}
}

// noteFinished says what calls cost that ended after their replies.
func (c *call) noteFinished() {
	finished, err := c.agent.Finished(c.ctx)
	if err != nil {
		c.Log.Error("look for finished calls", "error", err)
	}
	for _, one := range finished {
		c.note("%s", one)
	}
}

// take takes the arguments, if they fit the schema. Those that are null count as left out: some clients, such as CrewAI, send them.
func (c *call) take(raw json.RawMessage, name string, schema *openapi3.Schema) error {
	if len(raw) > 0 && json.Unmarshal(raw, &c.in) != nil {
		return wrong("the arguments are not a JSON object")
	}
	maps.DeleteFunc(c.in, func(_ string, value any) bool { return value == nil })
	if c.in == nil {
		c.in = map[string]any{}
	}
	if err := agent.CheckArguments(name, schema, c.in); err != nil {
		return wrong("%v; its parameters are %s", err, strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", "))
	}
	return nil
}

// do makes a call and reads its response.
func (c *call) do(operation, peer string, arguments map[string]any, into any) error {
	result, err := c.make(operation, peer, arguments)
	if err != nil || into == nil {
		return err
	}
	return c.agent.Decode(c.ctx, result, into)
}

// make makes a call, unless it sends something to somebody whom the human does not trust.
func (c *call) make(operation, peer string, arguments map[string]any) (*agent.Result, error) {
	if err := c.mayReach(operation, arguments); err != nil {
		return nil, err
	}
	result, err := c.agent.Call(c.ctx, operation, arguments, agent.CallOptions{Peer: peer, Patience: c.patience})
	if err != nil {
		return nil, err
	}
	c.seen = append(c.seen, result)
	if result.Earlier {
		c.facts["earlier"] = true
		c.note("This is the response to the same call, which was interrupted or ran at the same time. It is charged once.")
	}
	return result, nil
}

// text returns an argument without white space around it, or "".
func (c *call) text(name string) string {
	value, _ := c.in[name].(string)
	return strings.TrimSpace(value)
}

func (c *call) flag(name string) bool {
	value, _ := c.in[name].(bool)
	return value
}

// number returns an argument, or 0.
func (c *call) number(name string) int {
	value, _ := c.in[name].(float64)
	return int(value)
}

func (c *call) list(name string) (texts []string) {
	values, _ := c.in[name].([]any)
	for _, value := range values {
		if text, ok := value.(string); ok {
			texts = append(texts, strings.TrimSpace(text))
		}
	}
	return texts
}

// copyTo copies arguments that are there.
func (c *call) copyTo(arguments map[string]any, names map[string]string) {
	for from, to := range names {
		if value, ok := c.in[from]; ok {
			arguments[to] = value
		}
	}
}

// wrong returns what is wrong with the arguments beyond their schema.
func wrong(format string, arguments ...any) error {
	return agent.NewArgumentError(fmt.Sprintf(format, arguments...))
}

// missing returns the error of an argument that a tool needs and its schema does not require.
func missing(name, why string) error { return wrong("%s is missing: %s", name, why) }

// to resolves the argument that names somebody of these kinds. It may look the name up, which is paid for once.
func (c *call) to(name string, kinds ...string) (agent.Contact, error) {
	if c.text(name) == "" {
		return agent.Contact{}, missing(name, "an agent's name, #channel, the name of a trusted group, or an id")
	}
	return c.agent.Resolve(c.ctx, c.text(name), kinds...)
}

// unknownError means that somebody may not be written to.
type unknownError struct{ to agent.Contact }

func (e *unknownError) Error() string {
	if e.to.Held {
		return fmt.Sprintf("%s is held, so nothing was sent", e.to)
	}
	text := fmt.Sprintf("%s is neither a trusted contact nor has written first, so nothing was sent", e.to)
	if e.to.Kind == agent.KindChannel {
		text += "; only its admin can send to a channel"
	}
	return text
}

// mayReach returns a [confirmError] if a call publishes a text that goes to strangers for less than the human approves: received text could
// have asked for that. The descriptions of own groups and channels are like messages to them: the human approved their price. It returns
// an [unknownError] or a [trustError] if the call sends something to somebody who is not known.
func (c *call) mayReach(operation string, arguments map[string]any) error {
	if text, described := arguments["description"]; described && operation == "editAgent" && !c.Anyone {
		if err := c.confirmed(confirmError{
			problem: "everybody can read the description of a profile, so only the human changes it; nothing was done",
			text:    fmt.Sprintf("Parley: show everybody this description in your agent's profile? %v", text),
			command: "parley profile edit --description TEXT",
		}); err != nil {
			return err
		}
	}
	contacts, err := c.agent.Contacts()
	if err != nil {
		return err
	}
	in, _ := arguments["chat_id"].(string)
	group := contacts.ByID(in)
	for _, to := range contacts.Recipients(operation, arguments) {
		if !to.Known() && (!c.Anyone || to.Held) {
			return &unknownError{to}
		}
		// What members write in a trusted group is shown.
		if operation == "editGroupChat" && group != nil && group.Trusted && (!to.Trusted || to.Held) {
			return &trustError{to}
		}
	}
	return nil
}

// agentIDs resolves names of agents.
func (c *call) agentIDs(names []string) (ids []any, found []agent.Contact, err error) {
	for _, name := range names {
		one, err := c.agent.Resolve(c.ctx, name)
		if err == nil && one.Kind != agent.KindAgent {
			err = wrong("%s is no agent", one)
		}
		if err != nil {
			return nil, nil, err
		}
		ids, found = append(ids, one.ID), append(found, one)
	}
	return ids, found, nil
}
