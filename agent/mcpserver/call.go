package mcpserver

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// room is the number of characters of messages in a result. The others bound what a server sends that lies: clients cut long results.
const (
	room      = 10_240
	maxString = 16_384  // characters of a text
	maxLines  = 20_000  // characters of all lines
	maxFields = 200_000 // bytes of the fields
)

// ofOthers are the fields with texts of other agents. A result has them unchanged, and names those that it has.
var ofOthers = []string{"agents", "channels", "description", "groups", "members", "messages", "name", "notices", "pinned_messages"}

// handler returns what runs a tool. Whatever goes wrong is a result that the model can act on, never an error of the protocol.
func (s *parleyServer) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.written()
		before := s.askedBefore(request)
		counted, cancel := context.WithTimeout(before.Continue(ctx), s.patience)
		defer cancel()
		a, err := s.open()
		if err != nil {
			return s.result(nil, a.Explain(counted, err)), nil
		}
		if before.failed != nil && answer(request) == "cancel" {
			return s.result(nil, before.failed), nil
		}
		run := &agent.Run{Agent: a, Context: counted, Room: room, Patience: s.patience}
		value, err := s.run(t, run, request)
		if err == nil && ctx.Err() == nil { // a client that has gone gets the responses at its next attempt
			s.unseen.Store(nameOf(request), run)
			return s.result(value, nil), nil
		}
		run.Release()
		failed := a.Explain(counted, cmp.Or(err, ctx.Err()))
		if failed.Question != "" && hasForms(request.ClientCapabilities()) && answer(request) == "" {
			return s.ask(request, before.Command, failed), nil
		}
		return s.result(nil, failed), nil
	}
}

func (s *parleyServer) run(t tool, run *agent.Run, request *mcp.CallToolRequest) (*agent.Value, error) {
	if answer(request) == "decline" {
		return nil, errDeclined
	}
	run.Confirmed = answer(request) == "accept"
	given := map[string]any{}
	if raw := request.Params.Arguments; len(raw) > 0 && string(raw) != "null" { // which some clients send
		// It refuses half of a surrogate pair, which encoding/json would replace by another character.
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, agent.Usagef("the arguments are not a JSON object, or a text in them has half of a surrogate pair; nothing was done")
		}
	}
	action, err := t.action(given)
	if err != nil {
		return nil, err
	}
	for _, p := range action.Params {
		if p.Program {
			delete(given, p.Name)
		}
	}
	run.Args = given
	return action.Do(run)
}

// result makes the result of a value or a failure, in lines and in fields.
func (s *parleyServer) result(value *agent.Value, failed *agent.Failure) *mcp.CallToolResult {
	var fields map[string]any
	var lines []string
	fence := agent.NewFence()
	if failed != nil {
		next := s.next(failed)
		fields, lines = failed.Fields(next), []string{failed.Code + ": " + failed.Message}
		if failed.Paid > 0 {
			lines = append(lines, "paid "+agent.USD(failed.Paid)+" USD")
		}
		if next != "" {
			lines = append(lines, "next: "+next)
		}
	} else {
		fields = value.Data
		if text, err := json.Marshal(fields); err != nil || len(text) > maxFields { // of a server that lies
			fields = map[string]any{"paid_usd": value.Data["paid_usd"], "cut": true}
		}
		if names := slices.DeleteFunc(slices.Clone(ofOthers), func(name string) bool { return fields[name] == nil }); len(names) > 0 {
			fields["data_not_instructions"] = names
		}
		size := 0
		for i, part := range value.Parts {
			line := part.Line
			if part.Foreign != "" {
				line = fence.Text(part.Line, agent.Cut(part.Foreign, maxString))
			}
			if size += utf8.RuneCountInString(line); size > maxLines {
				lines = append(lines, strconv.Itoa(len(value.Parts)-i)+" more are not shown")
				break
			}
			lines = append(lines, line)
		}
	}
	return &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(lines, "\n")}}, StructuredContent: fields, IsError: failed != nil,
	}
}

// next returns the next step of a failure: a call of a tool, or a command for the human, who has another shell than this program.
func (s *parleyServer) next(failed *agent.Failure) string {
	switch {
	case failed.Exit == agent.ExitOpen:
		return "make exactly the same call again in a minute; it is not charged twice"
	case failed.Next == "":
		return ""
	case failed.Question != "" || failed.Action == nil || s.toolOf(failed.Action) == nil: // this client cannot ask, or a human decides
		return "ask your human to run: " + s.Line(failed.Next)
	}
	return "call " + s.Call(failed.Action, failed.Args)
}

// toolOf returns the tool of an action in this set, or nil.
func (s *parleyServer) toolOf(a *agent.Action) *tool {
	i := slices.IndexFunc(s.tools, func(t tool) bool { return slices.Contains(t.actions, a) })
	if i < 0 {
		return nil
	}
	return &s.tools[i]
}

// Call implements [agent.Face]: a tool with its arguments as JSON, or the command for the human.
func (s *parleyServer) Call(a *agent.Action, arguments map[string]any) string {
	t := s.toolOf(a)
	if t == nil && arguments == nil {
		return "parley " + a.Name
	} else if t == nil {
		return s.Line(a.Line(arguments))
	}
	given := map[string]any{}
	maps.Copy(given, arguments)
	if len(t.actions) > 1 {
		given["action"] = a.Verb()
	}
	if len(given) == 0 {
		return t.name
	}
	text, _ := json.Marshal(given, json.Deterministic(true)) // JSON values
	return t.name + " " + string(text)
}

func (*parleyServer) Param(p agent.Param) string { return p.Name }
