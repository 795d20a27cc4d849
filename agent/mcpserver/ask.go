package mcpserver

import (
	"cmp"
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

var errDeclined = &agent.Failure{Code: "declined", Exit: agent.ExitLimit, Charged: new(false),
	Message: "the human did not confirm this; nothing was done. Do not ask again unless the human wants it"}

const questionName = "confirm"

// hasForms reports whether the client can ask the human in a form.
func hasForms(of *mcp.ClientCapabilities) bool {
	return of != nil && of.Elicitation != nil && (of.Elicitation.Form != nil || of.Elicitation.URL == nil) // neither means forms
}

// asked is a question, and the command that continues with its answer: what it paid before is part of the result.
type asked struct {
	*agent.Command

	failed *agent.Failure
}

// ask returns the result that lets the client ask the human. The client then makes the same call with the answer. The form has no fields:
// accepting it is the yes, because clients accept a form without its optional fields.
func (s *parleyServer) ask(request *mcp.CallToolRequest, command *agent.Command, failed *agent.Failure) *mcp.CallToolResult {
	name := nameOf(request)
	s.questions.Store(name, asked{command, failed})
	return &mcp.CallToolResult{RequestState: name, InputRequests: mcp.InputRequestMap{questionName: &mcp.ElicitParams{
		Mode: "form", Message: "Parley: " + failed.Question,
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{}},
	}}}
}

// answer returns what the human did with the question: accept, decline or cancel. It is "" if nobody was asked.
func answer(request *mcp.CallToolRequest) string {
	if said, ok := request.Params.InputResponses[questionName].(*mcp.ElicitResult); ok {
		return said.Action
	}
	return ""
}

// askedBefore returns the question that a request answers, which an older client does in the same request, or one that nobody asked.
func (s *parleyServer) askedBefore(request *mcp.CallToolRequest) asked {
	if request.Params.InputResponses != nil {
		if stored, ok := s.questions.LoadAndDelete(cmp.Or(request.Params.RequestState, nameOf(request))); ok {
			return stored.(asked) //nolint:forcetypeassert // nothing else is stored
		}
	}
	_, command := agent.BeginCommand(context.Background())
	command.Face = s
	return asked{command, nil}
}

// unanswered lets a question count as not answered if the client fails to ask it. The SDK returns that failure as the result of the call.
func unanswered(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, request)
		params, ok := request.GetParams().(*mcp.CallToolParamsRaw)
		if err == nil || ctx.Err() != nil || !ok || !strings.HasPrefix(err.Error(), "multi-round-trip:") {
			return result, err
		}
		params.InputResponses = mcp.InputResponseMap{questionName: &mcp.ElicitResult{Action: "cancel"}}
		return next(ctx, method, request)
	}
}
