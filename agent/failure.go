package agent

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
)

// The exit codes of commands of an agent.
const (
	ExitError   = 1
	ExitUsage   = 2
	ExitRefused = 3 // by the rules of the server
	ExitNoKey   = 4 // no account, or a wrong key
	ExitLimit   = 5 // the daily limit, or --yes is missing
	ExitNoMoney = 6
	ExitOpen    = 7 // a payment was sent, and its outcome is not known
)

// Failure is what both faces tell of an error.
type Failure struct {
	// Code is a stable word.
	Code string
	Exit int
	// Message is what went wrong, and Next the command that helps, or "".
	Message, Next string
	// Retryable is true if the same may succeed later.
	Retryable bool
	// Charged is nil if it is not known whether the call that failed was charged.
	Charged    *bool
	Status     int // of the server's response, or 0
	RequestID  string
	RetryAfter time.Duration
}

// Explain returns what to tell of an error.
func (a *Agent) Explain(err error) *Failure {
	f := &Failure{Code: "error", Exit: ExitError, Message: err.Error(), Charged: new(false)}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		f.refused(refused)
	} else if missing, ok := errors.AsType[*NotFoundError](err); ok {
		f.Exit, f.Code, f.Next = ExitRefused, string(missing.Code()), "parley find WORDS --kind "+missing.Kind+"s"
	} else if _, ok := errors.AsType[*OpenError](err); ok {
		f.Exit, f.Code, f.Charged, f.Retryable = ExitOpen, "outcome_open", nil, true
	} else if bad, ok := errors.AsType[*ResponseError](err); ok {
		f.Code, f.Charged = "bad_response", new(bad.Charged > 0)
	} else if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		f.Code, f.Retryable = "unreachable", true
	} else {
		f.known(err)
	}
	if server, ok := errors.AsType[*ServerError](err); ok {
		f.Status, f.RequestID = server.Status, server.RequestID
	}
	if a != nil {
		f.Message = a.inActions(f.Message)
	}
	return f
}

// known explains the errors that need no field of theirs.
func (f *Failure) known(err error) {
	command := ""
	if confirm, ok := errors.AsType[*ConfirmError](err); ok {
		command = confirm.Command
	}
	for _, known := range []struct {
		is         bool
		exit       int
		code, next string
	}{
		{isA[*ArgumentError](err) || isA[*UnknownOperationError](err), ExitUsage, "usage", ""},
		{isA[*AmbiguousError](err), ExitUsage, "ambiguous_name", ""},
		{isA[*KeyError](err), ExitUsage, "key_used", ""},
		{errors.Is(err, ErrSelf), ExitUsage, "usage", "parley profile show"},
		{isA[*LimitError](err), ExitLimit, "limit", "parley wallet limit USD"},
		{isA[*ConfirmError](err), ExitLimit, "confirmation_needed", command},
		{isA[*TermsError](err) || errors.Is(err, ErrOtherTerms), ExitLimit, "terms_changed", "parley init --agree"},
		{isA[*NoMoneyError](err), ExitNoMoney, "no_money", "parley wallet balance"},
		{isA[*StateError](err), ExitError, "ledger_damaged", ""},
		{isA[*OwnedError](err), ExitNoKey, "account_elsewhere", ""},
		{errors.Is(err, ErrNoAccount), ExitNoKey, "no_account", "parley init"},
		{errors.Is(err, ErrNoKeyring), ExitNoKey, "no_keyring", "parley init --secrets file"},
		{errors.Is(err, ErrNoChat), ExitRefused, string(client.ErrorCodeChatNotFound), "parley send NAME TEXT"},
		{errors.Is(err, context.DeadlineExceeded), ExitError, "timeout", ""},
	} {
		if known.is {
			f.Exit, f.Code, f.Next = known.exit, known.code, known.next
			f.Retryable = known.code == "timeout" || known.code == "no_money"
			return
		}
	}
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// refused explains a refusal of the server.
func (f *Failure) refused(refused *RefusedError) {
	f.Exit, f.Code = ExitRefused, PlainWord(cmp.Or(string(refused.Code), "bad_response"))
	f.Status, f.RequestID, f.RetryAfter = refused.Status, refused.RequestID, refused.RetryAfter
	if refused.Charged != nil {
		f.Charged = refused.Charged
	}
	switch status := refused.Status; {
	case status == http.StatusUnauthorized:
		f.Exit, f.Next = ExitNoKey, "parley status"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f.Exit, f.Retryable = ExitError, true
	}
	f.Next = cmp.Or(f.Next, map[client.ErrorCode]string{
		client.ErrorCodeAgentNotFound: "parley find WORDS", client.ErrorCodeChannelNotFound: "parley find WORDS --kind channels",
	}[refused.Code])
}

var callsByPath = regexp.MustCompile(`(GET|POST) (/[a-z_]+)+`)

// phrases are what the server says to callers of its interface, and what is said in place of it.
var phrases = strings.NewReplacer("unpin_message_ids of POST /chat/group/edit", "parley group unpin",
	"set successor_agent_id to another current member", "name another current member as successor")

// inActions returns a message of the server with the commands of the table in place of calls.
func (a *Agent) inActions(message string) string {
	return callsByPath.ReplaceAllStringFunc(phrases.Replace(message), func(call string) string {
		method, path, _ := strings.Cut(call, " ")
		if o := a.contract.At(method, path); o != nil {
			return "parley " + ActionOf(o.ID).Name
		}
		return call
	})
}

// Money is what a run adds to its value: what all its calls paid, and with a payment the daily limit.
func (r *Run) Money() (fields map[string]any, line string) {
	command := commandOf(r.Context)
	fields = object{"paid_usd": USD(command.Charged())}
	line = "paid " + USD(command.Charged()) + " USD"
	today, err := r.ledger.Today(r.Context)
	if len(r.results) == 0 && command.Charged() == 0 || err != nil {
		return fields, ""
	}
	fields["today_usd"], fields["limit_usd"] = USD(today.Spent), USD(today.Limit)
	line += " · today " + USD(today.Spent) + " of " + USD(today.Limit)
	if reserved, err := r.ledger.Refused(r.Context); err == nil && reserved > 0 {
		fields["reserved_usd"] = USD(reserved)
		line += " (" + USD(reserved) + " reserved for refused calls)"
	}
	for _, result := range r.results {
		if result.Earlier {
			fields["earlier"] = true
		}
	}
	if fields["earlier"] == true {
		line += " · the response of the same call, which was charged once"
	}
	return fields, line
}
