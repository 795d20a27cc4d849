package mcpserver

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// question is something that only the human may decide. It is asked in a form, if the client has forms; else the model gets the
// command with which the human can decide it.
type question struct {
	text, command string
	approval      string // the approval to give, or
	trust         string // the id of the contact to trust; without both, the question itself is allowed
	at            time.Time
	began         *agent.Command // the call that asks; it goes on when the answer comes
}

// questionTime is how long an answer is awaited, as long as an approval.
const questionTime = 10 * time.Minute

// errDeclined means that the human said no.
var errDeclined = errors.New("the human declined; nothing was done. Do not ask again unless the human wants it")

// unansweredError means that the human did not answer: the question was closed, or the client could not show it.
type unansweredError struct{ question question }

func (e *unansweredError) Error() string {
	return "the human did not answer the question; nothing was done"
}

// trustError asks for trust in a contact, which is the human's to give.
type trustError struct{ contact agent.Contact }

func (e *trustError) Error() string {
	return "only the human can trust " + e.contact.String()
}

// confirmError asks for a yes to something that needs no approval of a payment.
type confirmError struct{ problem, text, command string }

func (e *confirmError) Error() string { return e.problem }

// confirmed returns a [*confirmError] unless the human has said yes to its text.
func (c *call) confirmed(ask confirmError) error {
	if c.allowed == ask.text {
		return nil
	}
	return &ask
}

// question returns the question of an error, if the human can decide it. Nothing in it comes from other agents but names.
func (c *call) question(err error) (question, bool) {
	if limit, ok := errors.AsType[*agent.LimitError](err); ok && limit.Approval != "" {
		text := fmt.Sprintf("Parley: %s. Allow once to %s?", limit.Reason(), c.doing())
		if limits, left, _, err := c.agent.Ledger().Limits(c.ctx); err == nil {
			text += fmt.Sprintf(" Of today's %s USD, %s USD are left.", agent.USD(limits.PerDay), agent.USD(left.PerDay))
		}
		return question{text: text, command: "parley wallet approve " + limit.Approval, approval: limit.Approval}, true
	}
	if confirm, ok := errors.AsType[*confirmError](err); ok {
		return question{text: confirm.text, command: confirm.command}, true
	}
	if unanswered, ok := errors.AsType[*unansweredError](err); ok {
		return unanswered.question, true
	}
	if trust, ok := errors.AsType[*trustError](err); ok {
		to := trust.contact
		command := to.TrustCommand()
		if command == "" {
			return question{}, false
		}
		text := fmt.Sprintf("Parley: trust %s (%s)? Your model will read what comes from there", agent.VisibleName(cmp.Or(to.Name, to.ID)), to.ID)
		if to.Kind != agent.KindChannel {
			text += ", and may write there"
		}
		return question{text: text + ".", command: command, trust: to.ID}, true
	}
	return question{}, false
}

// doing says what a call does, for the human.
func (c *call) doing() string {
	name := func(argument string) string { return agent.VisibleName(c.text(argument)) }
	switch c.request.Params.Name {
	case "parley_send":
		return fmt.Sprintf("send a message of %d characters to %s", len([]rune(c.text("text"))), name("to"))
	case "parley_create":
		text := fmt.Sprintf("create the %s %s", name("kind"), name("name"))
		for i, member := range c.list("members") {
			text += []string{" with ", ", "}[min(i, 1)] + agent.VisibleName(member)
		}
		if same, _ := c.known("#" + c.text("name")); same != nil && c.text("kind") == agent.KindChannel {
			text += ", a second one of this name"
		}
		return text
	case "parley_call":
		return "call " + name("operation")
	case "parley_admin":
		return fmt.Sprintf("%s %s", name("action"), name("conversation"))
	}
	return "call " + c.request.Params.Name
}

// hasForms reports whether the client can ask the human in a form.
func (c *call) hasForms() bool {
	of := c.request.ClientCapabilities()
	return of != nil && of.Elicitation != nil && (of.Elicitation.Form != nil || of.Elicitation.URL == nil) // neither means forms
}

// needsPassphrase reports whether the human can answer only at a terminal, because the wallet has a passphrase, or that is not known.
func (c *call) needsPassphrase(q question) bool {
	if q.trust != "" {
		return false
	}
	set, err := c.agent.Passphrase().IsSet()
	return set || err != nil
}

// ask returns the result that lets the client ask the human. The client then makes the same call with the answer.
func (c *call) ask(q question, began *agent.Command) *mcp.CallToolResult {
	q.at, q.began = time.Now(), began
	key := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.asked, func(_ string, old question) bool { return time.Since(old.at) > questionTime })
	c.asked[key] = q
	if pending, ok := c.ctx.Value(pendingKey{}).(*question); ok {
		*pending = q
	}
	return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{key: &mcp.ElicitParams{
		Mode: "form", Message: q.text,
		RequestedSchema: map[string]any{
			"type": "object", "required": []string{"allow"},
			"properties": map[string]any{"allow": map[string]any{"type": "boolean", "title": "Allow"}},
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

// takeAnswer does what the human answered.
func (c *call) takeAnswer(asked question, answer *mcp.ElicitResult) (err error) {
	switch allowed, _ := answer.Content["allow"].(bool); {
	case asked.began == nil || time.Since(asked.at) > questionTime:
		return errors.New("the question was not asked, or too long ago; make the call again")
	case answer.Action == "cancel":
		return &unansweredError{asked}
	case answer.Action != "accept" || !allowed:
		return errDeclined
	case asked.approval != "":
		_, err = c.agent.Ledger().Approve(c.ctx, asked.approval)
		if errors.Is(err, agent.ErrNoApproval) {
			err = nil // an equal call at the same time has used it, and this one shares its response
		}
	case asked.trust != "":
		err = c.agent.ChangeContact(c.ctx, asked.trust, func(known *agent.Contact) { known.Trusted, known.Held = true, false })
	default:
		c.allowed = asked.text
	}
	return err
}

type pendingKey struct{}

// orCommand names the command for the human if the client says that it has forms and then cannot show one.
func (s *parleyServer) orCommand(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		pending := &question{}
		result, err := next(context.WithValue(ctx, pendingKey{}, pending), method, request)
		if err == nil || pending.began == nil {
			return result, err
		}
		c := &call{parleyServer: s, reply: newReply(), ctx: ctx}
		c.fail(&unansweredError{*pending}, *pending)
		return c.finish(s.money(context.WithoutCancel(ctx), pending.began.Charged())), nil
	}
}
