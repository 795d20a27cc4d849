package mcpserver

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

var errDeclined = &agent.Failure{Code: "declined", Exit: agent.ExitLimit, Charged: new(false),
	Message: "the human did not confirm this; nothing was done. Do not ask again unless the human wants it"}

const questionName = "confirm"

// hasForms reports whether the client can ask the human in a form.
func hasForms(request *mcp.CallToolRequest) bool {
	of := request.ClientCapabilities()
	return of != nil && of.Elicitation != nil && (of.Elicitation.Form != nil || of.Elicitation.URL == nil) // neither means forms
}

// ask returns the result that lets the client ask the human. The client then makes the same call with the answer.
func ask(failed *agent.Failure) *mcp.CallToolResult {
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{questionName: &mcp.ElicitParams{
		Mode: "form", Message: "Parley: " + failed.Question,
		RequestedSchema: map[string]any{
			"type":       "object",
			"properties": map[string]any{"confirmed": map[string]any{"type": "boolean", "title": "Confirm"}},
		},
	}}}
}

// confirmed reports whether a call has the answer of the human, and whether that is a yes.
func confirmed(request *mcp.CallToolRequest) (answered, yes bool) {
	answer, answered := request.Params.InputResponses[questionName].(*mcp.ElicitResult)
	if answered {
		yes, _ = answer.Content["confirmed"].(bool)
		yes = yes && answer.Action == "accept"
	}
	return answered, yes
}
