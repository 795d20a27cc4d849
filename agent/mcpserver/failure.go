package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// maxProblem is the number of characters of an error that are shown.
const maxProblem = 600

// fail makes the result an error: one sentence, and the next step.
func (c *call) fail(err error, q question) {
	code, problem, next := c.explain(err)
	next = toolNames.ReplaceAllStringFunc(next, c.orAskHuman)
	if q.command != "" {
		next = "ask your human to run: " + c.human(q.command)
		if q.approval != "" {
			next += " (good for ten minutes), then make the same call again"
		}
	}
	problem = cut(agent.Visible(strings.ReplaceAll(problem, "\n", " ")), maxProblem)
	c.failed = true
	c.facts["error"], c.facts["problem"] = code, problem
	c.line("error %s: %s.", code, strings.TrimSuffix(problem, "."))
	if next != "" {
		c.facts["next"] = next
		c.line("next: %s.", next)
	}
}

// explain returns a stable code, what went wrong, and what to do.
func (c *call) explain(err error) (code, problem, next string) {
	if refused, ok := errors.AsType[*agent.RefusedError](err); ok {
		return c.explainRefusal(refused)
	}
	if missing, ok := errors.AsType[*agent.NotFoundError](err); ok {
		next = findNext[missing.Code()]
		if missing.Channel {
			next = "make the call with #" + agent.VisibleName(missing.Name)
		}
		return string(missing.Code()), missing.Error(), next
	}
	if unknown, ok := errors.AsType[*agent.UnknownOperationError](err); ok {
		return "invalid_arguments", unknown.Error(), "call parley_prices, which lists all operations"
	}
	if wrong, ok := errors.AsType[*agent.ArgumentError](err); ok {
		return "invalid_arguments", wrong.Error() + "; nothing was done", ""
	}
	if limit, ok := errors.AsType[*agent.LimitError](err); ok {
		problem = limit.Reason() + "; nothing was paid"
		if limit.Approval == "" { // a fetch
			return "limit", problem, "use parley_inbox with last_minutes, which is free; fetch again later, or ask your human to run: " +
				c.human("parley wallet limits")
		}
		return "approval_needed", problem, ""
	}
	if terms, ok := errors.AsType[*agent.TermsError](err); ok {
		problem = fmt.Sprintf("the server asks for another %s than was agreed (%s instead of %s); nothing was paid", terms.What,
			said(terms.Asked), said(terms.Agreed))
		return "terms_changed", problem, "ask your human to look at it with: " + c.human("parley prices")
	}
	if state, ok := errors.AsType[*agent.StateError](err); ok {
		return "state_changed", state.Error(), "only your human can decide, with: " + c.human("parley wallet check")
	}
	if _, ok := errors.AsType[*agent.OpenError](err); ok {
		problem = "the payment was sent and its outcome is not known yet; it is finishing in the background"
		if server, ok := errors.AsType[*agent.ServerError](err); ok {
			problem += "; " + server.Error()
		}
		return "open", problem,
			"make exactly the same call again in a minute; it returns the response and is not charged twice"
	}
	if unknown, ok := errors.AsType[*unknownError](err); ok {
		mine := ""
		if unknown.to.Kind == agent.KindChannel {
			mine = "only if I am the admin of the channel: "
		}
		return "unknown_recipient", unknown.Error(),
			mine + fmt.Sprintf("call parley_contacts with action trust and name %s, which asks your human", unknown.to.ID)
	}
	if unreachable, ok := errors.AsType[*client.UnreachableError](err); ok {
		return "unreachable", unreachable.Error(), "make the same call again later"
	}
	if group, ok := errors.AsType[*agent.GroupNotTrustedError](err); ok {
		command := group.Group.TrustCommand()
		return "group_not_trusted", strings.Replace(group.Error(), command, c.human(command), 1), ""
	}
	if bad, ok := errors.AsType[*agent.ResponseError](err); ok {
		return "bad_response", bad.Error(), ""
	}
	_, confirm := errors.AsType[*confirmError](err)
	_, unanswered := errors.AsType[*unansweredError](err)
	_, untrusted := errors.AsType[*trustError](err)
	switch {
	case confirm || unanswered || untrusted:
		return "approval_needed", err.Error(), ""
	case errors.Is(err, errDeclined):
		return "declined", err.Error(), ""
	case errors.Is(err, agent.ErrSelf):
		return "invalid_arguments", err.Error() + "; nothing was done", "call parley_lookup with name me"
	case errors.Is(err, agent.ErrNoChat):
		return "chat_not_found", err.Error(), ""
	case errors.Is(err, agent.ErrFrozen):
		return "frozen", "the wallet is frozen; nothing was paid", "only your human can end that, with: " + c.human("parley wallet unfreeze")
	case errors.Is(err, agent.ErrNoAccount):
		return "no_account", "this wallet has no account", c.registering()
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return "timeout", "the service did not respond in time", "make the same call again; a payment is never made twice for it"
	}
	return "failed", err.Error(), ""
}

// findNext is the next step after a name or an id was not found.
var findNext = map[client.ErrorCode]string{
	client.ErrorCodeAgentNotFound: "call parley_find with kind agents and words of the name or description; " +
		"a group that is not trusted is named by its id",
	client.ErrorCodeChannelNotFound: "call parley_find with kind channels and words of the name or description",
	client.ErrorCodeChatNotFound:    "call parley_find with kind groups, or parley_lookup with name me and detailed, which lists my chats",
}

// explainRefusal explains a response of the server that is not 200.
func (c *call) explainRefusal(refused *agent.RefusedError) (code, problem, next string) {
	code, problem, next = agent.PlainWord(string(refused.Code)), "the service says "+said(c.inTools(refused.Message)), findNext[refused.Code]
	if refused.Message == "" {
		return "unavailable", fmt.Sprintf("the service responded with status %d", refused.Status), "make the same call again later"
	}
	switch refused.Code { //nolint:exhaustive // the message of the others says it
	case client.ErrorCodePaymentRefused:
		problem = "the payment was not accepted, most likely because the wallet has not enough USDC; nothing was charged (" + problem + ")"
		return code, problem, "ask your human to send USDC to " + c.agent.Address()
	case client.ErrorCodeInvalidAPIKey:
		next = "ask your human to check the account with: " + c.human("parley status")
	case client.ErrorCodeInvalidTAN:
		next = "call parley_create again; it gets another TAN"
	}
	if next == "" && (refused.Status >= http.StatusInternalServerError || refused.Status == http.StatusTooManyRequests) {
		next = "make the same call again later"
	}
	if refused.Charged != nil && *refused.Charged {
		problem += " (the call was charged)"
	}
	return code, problem, next
}

// maxSaid is the number of characters of a server's words that are shown in an error.
const maxSaid = 240

// said quotes words of a server on one line. A server that lies may send anything.
func said(text string) string {
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune("<>[]()!`|\"", r) {
			return '\''
		}
		return r
	}, cut(text, maxSaid))
	return `"` + agent.Visible(strings.Join(strings.Fields(text), " ")) + `"`
}

// cut returns at most n characters of a text.
func cut(text string, n int) string {
	if characters := []rune(text); len(characters) > n {
		return string(characters[:n]) + "…"
	}
	return text
}
