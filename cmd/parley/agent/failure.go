package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// The exit codes of the commands of an agent. Those of a server have only 0, 1 and 2.
const (
	ExitError       = 1
	ExitUsage       = 2
	ExitRefused     = 3 // by the rules of the server
	ExitNoKey       = 4 // no account, or a wrong key
	ExitLimit       = 5 // a limit, an approval, frozen, other terms
	ExitNoMoney     = 6
	ExitOpen        = 7 // a payment was sent, and its outcome is not known
	ExitInterrupted = 130
)

// poorError means that the wallet has too little money.
type poorError struct{ text, next string }

func (e *poorError) Error() string { return e.text }

// failure is an error of a command with what its caller needs to know.
type failure struct {
	error

	exit   int
	asJSON bool
	// The fields of the JSON form. charged is nil if it is not known.
	code      string
	charged   any
	retryable bool
	next      string              // a command that helps
	paid      uint64              // by the whole command, in atomic units
	runnable  func(string) string // of the session, if there is one
	// What the server responded, if it did.
	status     int
	requestID  string
	retryAfter time.Duration
}

func (f *failure) Unwrap() error { return f.error }

// withoutWallet are the commands that open the wallet themselves, if they need it.
var withoutWallet = []string{"init", "install", "prices", "config"}

// Run opens the wallet and runs an agent's command. It prints the plan of a dry run, and adds to other errors what their caller needs to
// know. Other commands just run.
func (i *Invocation) Run(ctx context.Context, command *kong.Context) (err error) {
	s := i.session
	if s == nil {
		return command.Run()
	}
	if limit := s.flags.Timeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errTimeout)
		defer cancel()
		command.BindTo(ctx, (*context.Context)(nil))
	}
	if !slices.Contains(withoutWallet, s.command) {
		err = s.open(ctx)
	}
	if err == nil {
		err = command.Run()
	}
	if errors.Is(err, errDryRun) {
		err = s.printPlan(ctx)
	}
	if err == nil {
		return nil
	}
	f := explain(ctx, err, s.wantsJSON())
	for _, call := range s.finishedCalls(ctx) {
		fmt.Fprintln(s.Err, call)
	}
	f.paid, f.runnable = s.calls.Charged(), func(text string) string { return s.runnable(s.inCommands(text)) }
	return f
}

// errTimeout means that --timeout ended a command.
var errTimeout = errors.New("the command was not done within --timeout")

// What the parser says about a negative number, about a flag without a value, and about a flag that it does not know.
var (
	negative = regexp.MustCompile(`^(--[a-z-]+): expected .* value but got "-[0-9.]+[a-z]*" \(short flag\)`)
	noValue  = regexp.MustCompile(`^(--[a-z-]+): expected .* value but got "EOL"`)
	unknown  = regexp.MustCompile(`^unknown flag --([a-z-]+)`)
)

// Usage returns the error for a command line that cannot be parsed. The name of an unknown command is expected to be an agent's.
func Usage(ctx context.Context, err error, to console.Console) error {
	wrong := console.Usage(err)
	parsed, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return wrong
	}
	if found := negative.FindStringSubmatch(err.Error()); found != nil {
		wrong = console.Usagef("%s must not be negative", found[1])
	} else if found := noValue.FindStringSubmatch(err.Error()); found != nil {
		wrong = console.Usagef("%s needs a value", found[1])
	} else if found := unknown.FindStringSubmatch(err.Error()); found != nil && parsed.Context.Selected() == nil &&
		slices.ContainsFunc(CommonFlags(parsed.Context.Model), func(flag *kong.Flag) bool { return flag.Name == found[1] }) {
		wrong = console.Usagef("name a command; --%s is a flag of the commands for agents", found[1])
	}
	help, command := "parley", parsed.Context.Selected()
	if command != nil {
		if group := command.ClosestGroup(); group == nil || group.Key != Group {
			return wrong
		}
		help = "parley " + console.CommandName(command)
	}
	f := explain(ctx, wrong, to.Plain() || slices.Contains(parsed.Context.Args, "--json"))
	f.next = help + " --help"
	return f
}

// explain returns the failure for an error of an agent's command.
func explain(ctx context.Context, err error, asJSON bool) *failure {
	f := &failure{error: err, exit: ExitError, asJSON: asJSON, code: "error", charged: false}
	if limit, ok := errors.AsType[*agent.LimitError](err); ok {
		f.exit, f.code = ExitLimit, "limit"
		if limit.ForPerson() {
			f.next = "parley wallet limits"
		}
		if limit.Approval != "" {
			f.code, f.next = "approval_needed", "parley wallet approve "+limit.Approval
		}
	} else if refused, ok := errors.AsType[*agent.RefusedError](err); ok {
		f.refused(refused)
	} else if missing, ok := errors.AsType[*agent.NotFoundError](err); ok {
		f.exit, f.code, f.next = ExitRefused, string(missing.Code()), finding[missing.Kind]
	} else if group, ok := errors.AsType[*agent.GroupNotTrustedError](err); ok {
		f.exit, f.code, f.next = ExitRefused, "group_not_trusted", group.Group.TrustCommand()
	} else if personal, ok := errors.AsType[*personError](err); ok {
		f.exit, f.code, f.next = ExitLimit, "person_needed", personal.command
	} else if stranger, ok := errors.AsType[*strangerError](err); ok {
		f.exit, f.code, f.next = ExitLimit, "stranger", "parley contacts add "+stranger.to.String()
	} else if _, ok := errors.AsType[*agent.TermsError](err); ok || errors.Is(err, agent.ErrOtherTerms) {
		f.exit, f.code, f.next = ExitLimit, "terms_changed", "parley prices --accept"
	} else if _, ok := errors.AsType[*agent.StateError](err); ok {
		f.exit, f.code, f.next = ExitLimit, "state_changed", "parley wallet check"
	} else if _, ok := errors.AsType[*agent.OpenError](err); ok {
		f.exit, f.code, f.charged, f.retryable, f.next = ExitOpen, "outcome_open", nil, true, "parley wallet pending"
	} else if bad, ok := errors.AsType[*agent.ResponseError](err); ok {
		f.code, f.charged = "bad_response", bad.Charged > 0
	} else if poor, ok := errors.AsType[*poorError](err); ok {
		f.exit, f.code, f.retryable, f.next = ExitNoMoney, "no_money", true, poor.next
	} else if _, ok := errors.AsType[*console.UsageError](err); ok {
		f.exit, f.code = ExitUsage, "usage"
	} else {
		f.simple(err)
	}
	if unseen, ok := errors.AsType[*outputError](err); ok {
		f.charged = unseen.charged
	}
	if server, ok := errors.AsType[*agent.ServerError](err); ok {
		f.status, f.requestID = server.Status, server.RequestID
	}
	switch interrupted := errors.Is(err, console.ErrInterrupted); {
	case ctx.Err() == nil && !interrupted:
	case interrupted, !errors.Is(context.Cause(ctx), errTimeout):
		if errors.Is(err, context.Canceled) && f.exit != ExitOpen {
			f.error = errors.New("interrupted; the same command goes on")
		}
		f.exit, f.code, f.charged, f.retryable = ExitInterrupted, "interrupted", nil, true
	case f.exit != ExitOpen:
		f.code, f.retryable = "timeout", true
		if errors.Is(err, context.DeadlineExceeded) {
			f.error = errTimeout
		}
	}
	return f
}

// simple explains errors without fields.
func (f *failure) simple(err error) {
	found, network := errors.AsType[net.Error](err)
	if _, file := found.(syscall.Errno); network && !file {
		f.code, f.retryable = "unreachable", true
		return
	}
	for _, known := range []struct {
		err        error
		exit       int
		code, next string
	}{
		{agent.ErrFrozen, ExitLimit, "frozen", "parley wallet unfreeze"},
		{agent.ErrRaise, ExitLimit, "limit", ""}, {agent.ErrNoApproval, ExitLimit, "limit", ""},
		{agent.ErrNoAccount, ExitNoKey, "no_account", "parley init"}, {errNoWallet, ExitNoKey, "no_account", "parley init"},
		{agent.ErrSelf, ExitUsage, "usage", "parley profile show"},
		{agent.ErrNoChat, ExitRefused, string(client.ErrorCodeChatNotFound), "parley send NAME TEXT"},
		{errNoKey, ExitNoKey, "no_key", ""}, {errNoPassphrase, ExitNoKey, "no_key", ""},
		{agent.ErrNoKeyring, ExitNoKey, "no_keyring", "parley init --secrets encrypted"},
		{errNoPlace, ExitNoKey, "no_keyring", "parley init --secrets encrypted"},
	} {
		if errors.Is(err, known.err) {
			f.exit, f.code, f.next = known.exit, known.code, known.next
			return
		}
	}
}

// refused explains a refusal of the server.
func (f *failure) refused(refused *agent.RefusedError) {
	f.exit, f.code, f.charged = ExitRefused, agent.PlainWord(string(refused.Code)), false
	f.status, f.requestID, f.retryAfter = refused.Status, refused.RequestID, refused.RetryAfter
	if refused.Charged != nil {
		f.charged = *refused.Charged
	}
	switch status := refused.Status; {
	case status == http.StatusUnauthorized:
		f.exit = ExitNoKey
	case isPoor(refused):
		f.exit, f.retryable, f.next = ExitNoMoney, true, "parley wallet balance"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f.exit, f.retryable = ExitError, true
	}
	if refused.Code == client.ErrorCodeAgentNotFound {
		f.next = finding[agent.KindAgent]
	}
}

// finding are the commands that find what a name does not name, by its kind.
var finding = map[string]string{
	agent.KindAgent: "parley find WORDS", agent.KindGroup: "parley find WORDS --groups", agent.KindChannel: "parley find WORDS --channels",
}

// isPoor reports whether a payment was refused because the wallet has too little money.
func isPoor(refused *agent.RefusedError) bool {
	return refused.Status == http.StatusPaymentRequired && refused.ParleyError.Error != nil &&
		strings.Contains(*refused.ParleyError.Error, "insufficient")
}

// Report writes an error and returns the exit code.
func Report(to io.Writer, err error) int {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		fmt.Fprintln(to, "parley:", agent.Reveal(err.Error())) // an endpoint or a facilitator may have written a part of it
		if _, usage := errors.AsType[*console.UsageError](err); usage {
			return ExitUsage
		}
		return ExitError
	}
	text := f.Error()
	if f.runnable != nil {
		text, f.next = f.runnable(text), f.runnable(f.next)
	}
	text = agent.Visible(text) // a server may have written it
	paid := agent.USD(f.paid)
	if f.paid > 0 && f.charged == false {
		text += "; this was not charged: the " + paid + " USD are for calls before, such as looking up a name"
	}
	if !f.asJSON {
		fmt.Fprintln(to, "parley:", strings.ReplaceAll(text, "\n", "\n    "))
		if f.paid > 0 && f.charged != false {
			fmt.Fprintln(to, "paid", paid, "USD")
		}
		if f.next != "" && !strings.Contains(text, f.next) {
			fmt.Fprintln(to, "try:", agent.Reveal(f.next))
		}
		return f.exit
	}
	shown := object{"error": text, "code": f.code, "charged": f.charged, "retryable": f.retryable, "paid_usd": paid}
	if f.status != 0 {
		shown["status"] = f.status
	}
	if f.requestID != "" {
		shown["request_id"] = agent.PlainWord(f.requestID)
	}
	if f.retryAfter > 0 {
		shown["retry_after_seconds"] = f.retryAfter.Seconds()
	}
	if f.next != "" {
		shown["next"] = f.next
	}
	_ = console.EncodeJSON(to, shown) // standard error may be closed
	return f.exit
}
