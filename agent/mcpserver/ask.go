package mcpserver

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// question is something dear or final that the human confirms.
type question struct {
	confirm   *agent.Failure
	arguments string
	at        time.Time
	began     *agent.Command // the call that asks; it goes on when the answer comes
}

// questionTime is how long an answer is awaited.
const questionTime = 10 * time.Minute

// errDeclined means that the human said no, or did not answer.
var errDeclined = errors.New("the human did not confirm this; nothing was done. Do not ask again unless the human wants it")

// confirmed returns an error unless the human has confirmed a question about a call with the same arguments.
func (q question) confirmed(answer *mcp.ElicitResult, arguments string) error {
	allowed, _ := answer.Content["confirmed"].(bool)
	if q.began == nil || time.Since(q.at) > questionTime || q.arguments != arguments {
		return errors.New("the question was not asked, or too long ago; make the call again")
	}
	if answer.Action != "accept" || !allowed {
		return errDeclined
	}
	return nil
}

// hasForms reports whether the client can ask the human in a form.
func hasForms(request *mcp.CallToolRequest) bool {
	of := request.ClientCapabilities()
	return of != nil && of.Elicitation != nil && (of.Elicitation.Form != nil || of.Elicitation.URL == nil) // neither means forms
}

// ask returns the result that lets the client ask the human. The client then makes the same call with the answer.
func (s *parleyServer) ask(ctx context.Context, q question) *mcp.CallToolResult {
	q.at = time.Now()
	key := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.asked, func(_ string, old question) bool { return time.Since(old.at) > questionTime })
	s.asked[key] = q
	if pending, ok := ctx.Value(pendingKey{}).(**agent.Failure); ok {
		*pending = q.confirm
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: &mcp.ElicitParams{
		Mode: "form", Message: "Parley: " + q.confirm.Question,
		RequestedSchema: map[string]any{
			"type": "object", "required": []string{"confirmed"},
			"properties": map[string]any{"confirmed": map[string]any{"type": "boolean", "title": "Confirm"}},
		},
	}}}
}

// answerTo returns the answer that a call has, or nil, and the question that the same call asked before.
func (s *parleyServer) answerTo(request *mcp.CallToolRequest) (asked question, answer *mcp.ElicitResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, response := range request.Params.InputResponses {
		if answer, ok := response.(*mcp.ElicitResult); ok {
			asked = s.asked[key]
			delete(s.asked, key)
			return asked, answer
		}
	}
	return question{}, nil
}

type pendingKey struct{}

// orCommand names the command for the human if the client says that it has forms and then cannot show one.
func (s *parleyServer) orCommand(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		var asked *agent.Failure
		result, err := next(context.WithValue(ctx, pendingKey{}, &asked), method, request)
		if err == nil || asked == nil {
			return result, err
		}
		return s.result(nil, asked), nil
	}
}
