package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// room is the number of characters of messages in a result, and maxList and maxString bound everything else: clients cut long results.
const (
	room      = 8_000
	maxList   = 100
	maxString = 16_384
	maxLines  = 20_000
)

// untrustedKey marks results with text that other agents wrote.
const untrustedKey = "parley/untrusted"

// handler returns what runs a tool. Whatever goes wrong is a result that the model can act on, never an error of the protocol.
func (s *parleyServer) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, request *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.written()
		asked, answer := s.answerTo(request)
		_, command := agent.BeginCommand(ctx)
		if asked.began != nil {
			command = asked.began
		}
		counted, cancel := context.WithTimeout(command.Continue(ctx), s.patience)
		defer cancel()
		a, err := s.open()
		if err != nil {
			return s.result(nil, nil, a.Explain(err)), nil
		}
		run := &agent.Run{Agent: a, Context: counted, Room: room, Patience: s.patience}
		value, err := s.run(t, run, request, asked, answer)
		if confirm, ok := errors.AsType[*agent.ConfirmError](err); ok && answer == nil && hasForms(request) {
			return s.ask(counted, question{confirm: confirm, arguments: string(request.Params.Arguments), began: command}), nil
		}
		if err == nil && ctx.Err() == nil { // a client that has gone gets the responses at its next attempt
			s.unseen.Store(request.Extra.Header.Get(requestHeader), run)
			if t.name == "parley_send" {
				select {
				case s.sent <- struct{}{}:
				default: // it is known that something was sent
				}
			}
			return s.result(run, value, nil), nil
		}
		run.Release()
		if _, open := errors.AsType[*agent.OpenError](err); open {
			s.resume(context.WithoutCancel(ctx), a)
		}
		return s.result(run, nil, a.Explain(err)), nil
	}
}

// run runs the action of a call.
func (s *parleyServer) run(
	t tool, run *agent.Run, request *mcp.CallToolRequest, asked question, answer *mcp.ElicitResult,
) (*agent.Value, error) {
	if answer != nil {
		if err := asked.confirmed(answer, string(request.Params.Arguments)); err != nil {
			return nil, err
		}
		run.Confirmed = true
	}
	raw := request.Params.Arguments
	if halfPair(raw) {
		return nil, agent.NewArgumentError("a text has half of a surrogate pair, which is no character; nothing was done")
	}
	given := map[string]any{}
	if len(raw) > 0 && json.Unmarshal(raw, &given) != nil {
		return nil, agent.NewArgumentError("the arguments are not a JSON object")
	}
	if given == nil { // some clients send null
		given = map[string]any{}
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

var escapes = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

// halfPair reports whether JSON has half of a surrogate pair, which its decoder would replace by another character.
func halfPair(raw []byte) bool {
	high := -1 // where the second half must begin
	for _, at := range escapes.FindAllIndex(raw, -1) {
		code, err := strconv.ParseUint(strings.TrimPrefix(string(raw[at[0]+1:at[1]]), "u"), 16, 32)
		isHigh, isLow := err == nil && code>>10 == 0xd800>>10, err == nil && code>>10 == 0xdc00>>10
		if at[1]-at[0] != len(`\u0000`) {
			isHigh, isLow = false, false
		}
		if (high >= 0) != isLow || isLow && high != at[0] {
			return true
		}
		if high = -1; isHigh {
			high = at[1]
		}
	}
	return high >= 0
}

// result makes the result of a run: the value or the failure, in lines and in fields.
func (s *parleyServer) result(run *agent.Run, value *agent.Value, failed *agent.Failure) *mcp.CallToolResult {
	fields, lines, fence, foreign := map[string]any{}, []string(nil), agent.NewFence(), false
	if failed != nil {
		lines = append(lines, "error "+failed.Code+": "+failed.Message)
		maps.Copy(fields, map[string]any{"error": failed.Message, "code": failed.Code, "retryable": failed.Retryable, "charged": failed.Charged})
		if next := s.next(failed); next != "" {
			lines, fields["next"] = append(lines, "next: "+next), next
		}
	}
	if value != nil {
		maps.Copy(fields, bounded(value.Data).(map[string]any)) //nolint:forcetypeassert // it stays an object
		size := 0
		for i, part := range value.Parts {
			line := part.Line
			if part.Foreign != "" {
				line, foreign = fence.Text(part.Line, cut(part.Foreign)), true
			}
			if size += utf8.RuneCountInString(line); size > maxLines {
				lines = append(lines, strconv.Itoa(len(value.Parts)-i)+" more are not shown")
				break
			}
			lines = append(lines, line)
		}
	}
	if run != nil {
		finished, err := run.Finished(run.Context)
		if err != nil {
			s.Log.Error("look for finished calls", "error", err)
		}
		for _, one := range finished {
			lines = append(lines, one.String())
		}
		money, line := run.Money()
		maps.Copy(fields, money)
		if line != "" {
			lines = append(lines, line)
		}
	}
	result := &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: strings.Join(lines, "\n")}}, StructuredContent: fields, IsError: failed != nil,
	}
	if foreign {
		result.Meta = mcp.Meta{untrustedKey: true}
	}
	return result
}

// bounded returns a value of which long lists and texts are cut, whatever a server sends.
func bounded(value any) any {
	switch v := value.(type) {
	case string:
		return cut(v)
	case []any:
		list := []any{}
		for _, one := range v[:min(len(v), maxList)] {
			list = append(list, bounded(one))
		}
		return list
	case map[string]any:
		fields := map[string]any{}
		for name, one := range v {
			fields[name] = bounded(one)
		}
		return fields
	}
	return value
}

func cut(text string) string {
	if utf8.RuneCountInString(text) <= maxString {
		return text
	}
	return agent.Cut(text, maxString)
}

var commands = regexp.MustCompile(`^parley ((?:group|channel|contacts|profile|key|wallet) )?([a-z]+)(.*)$`)

// next returns the next step of a failure: a call of a tool, or a command for the human, who has another shell than this program.
func (s *parleyServer) next(failed *agent.Failure) string {
	found := commands.FindStringSubmatch(failed.Next)
	switch {
	case failed.Code == "outcome_open":
		return "make exactly the same call again in a minute; it is not charged twice"
	case failed.Code == "confirmation_needed" && failed.Next != "": // this client cannot ask
		return "ask your human to run: " + failed.Next + s.home()
	case found == nil:
		return failed.Next
	}
	if action := agent.ActionNamed(found[1] + found[2]); action != nil && action.Tool != "" {
		for _, t := range s.tools {
			if t.name == action.Tool {
				rest := strings.ReplaceAll(strings.TrimSpace(found[3]), "--", "")
				if len(t.actions) > 1 {
					rest = strings.TrimSpace("action " + action.Verb() + " " + rest)
				}
				return strings.TrimSpace("call " + t.name + " " + rest)
			}
		}
	}
	return "ask your human to run: " + failed.Next + s.home()
}

// home is the flag that names the wallet's folder.
func (s *parleyServer) home() string {
	if s.Home == "" {
		return ""
	}
	if !agent.Tame(s.Home) || strings.Contains(s.Home, " ") {
		return " --home " + strconv.Quote(s.Home)
	}
	return " --home " + s.Home
}
