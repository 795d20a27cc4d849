package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// ExitInterrupted is the exit code after a signal.
const ExitInterrupted = 130

// failure is an error of a command with what its caller needs to know.
type failure struct {
	error
	*agent.Failure

	asJSON bool
	paid   uint64 // by the whole command, in atomic units
}

func (f *failure) Unwrap() error { return f.error }

// failed returns the failure for an error of a command.
func (s *session) failed(ctx context.Context, err error) error {
	f := explain(ctx, s.agent, err)
	f.asJSON = s.wantsJSON()
	f.Message, f.Next = s.runnable(f.Message), s.runnable(f.Next)
	if s.agent != nil {
		finished, _ := s.agent.Finished(ctx) // the next command tells it
		for _, call := range finished {
			fmt.Fprintln(s.Err, call)
		}
	}
	f.paid = s.calls.Charged()
	return f
}

// explain returns the failure for an error.
func explain(ctx context.Context, a *agent.Agent, err error) *failure {
	f := &failure{error: err, Failure: a.Explain(err)}
	switch {
	case f.Code != "error":
	case errors.Is(err, errNoWallet):
		f.Exit, f.Code, f.Next = agent.ExitNoKey, "no_account", "parley init"
	case errors.Is(err, errNoKey):
		f.Exit, f.Code = agent.ExitNoKey, "no_key"
	default:
		if _, usage := errors.AsType[*console.UsageError](err); usage {
			f.Exit, f.Code = agent.ExitUsage, "usage"
		}
		found, network := errors.AsType[net.Error](err)
		if _, file := found.(syscall.Errno); network && !file {
			f.Code, f.Retryable = "unreachable", true
		}
	}
	if confirm, ok := errors.AsType[*agent.ConfirmError](err); ok {
		f.Message = confirm.Error() + "; to confirm, run the same command with --yes"
	}
	if unseen, ok := errors.AsType[*outputError](err); ok {
		f.Charged = &unseen.charged
	}
	switch interrupted := errors.Is(err, console.ErrInterrupted); {
	case ctx.Err() == nil && !interrupted:
	case interrupted, !errors.Is(context.Cause(ctx), errTimeout):
		if errors.Is(err, context.Canceled) && f.Exit != agent.ExitOpen {
			f.Message = "interrupted; the same command goes on"
		}
		f.Exit, f.Code, f.Charged, f.Retryable = ExitInterrupted, "interrupted", nil, true
	case f.Exit != agent.ExitOpen:
		f.Code, f.Retryable = "timeout", true
		if errors.Is(err, context.DeadlineExceeded) {
			f.Message = errTimeout.Error()
		}
	}
	return f
}

// What the parser says about a negative number, about a flag without a value, about a flag that it does not know, and about a text that
// begins with a dash.
var (
	negative = regexp.MustCompile(`^(--[a-z-]+): expected .* value but got "-[0-9.]+[a-z]*" \(short flag\)`)
	noValue  = regexp.MustCompile(`^(--[a-z-]+): expected .* value but got "EOL"`)
	unknown  = regexp.MustCompile(`^unknown flag --([a-z-]+)`)
	dash     = regexp.MustCompile(`^unknown flag -[^-]?`)
)

// Usage returns the error for a command line that cannot be parsed. The name of an unknown command is expected to be an agent's.
func Usage(ctx context.Context, err error, to console.Console) error {
	wrong := console.Usage(err)
	parsed, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return wrong
	}
	command := parsed.Context.Selected()
	if found := negative.FindStringSubmatch(err.Error()); found != nil {
		wrong = console.Usagef("%s must not be negative", found[1])
	} else if found := noValue.FindStringSubmatch(err.Error()); found != nil {
		wrong = console.Usagef("%s needs a value", found[1])
	} else if found := unknown.FindStringSubmatch(err.Error()); found != nil && command == nil &&
		slices.ContainsFunc(CommonFlags(parsed.Context.Model), func(flag *kong.Flag) bool { return flag.Name == found[1] }) {
		wrong = console.Usagef("name a command; --%s is a flag of the commands for agents", found[1])
	} else if dash.MatchString(err.Error()) && command != nil {
		wrong = console.Usagef("%w; write -- before a text that begins with a dash, as in: parley send bob -- '- milk'", err)
	}
	help := "parley"
	if command != nil {
		if group := command.ClosestGroup(); group == nil || group.Key != Group {
			return wrong
		}
		help = "parley " + console.CommandName(command)
	}
	f := explain(ctx, nil, wrong)
	f.asJSON = to.Plain() || slices.Contains(parsed.Context.Args, "--json")
	f.Next = help + " --help"
	return f
}

// Report writes an error and returns the exit code.
func Report(to io.Writer, err error) int {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		fmt.Fprintln(to, "parley:", agent.Reveal(err.Error())) // an endpoint or a facilitator may have written a part of it
		if _, usage := errors.AsType[*console.UsageError](err); usage {
			return agent.ExitUsage
		}
		return agent.ExitError
	}
	text := agent.Visible(f.Message) // a server may have written it
	paid := agent.USD(f.paid)
	uncharged := f.Charged != nil && !*f.Charged
	if f.paid > 0 && uncharged {
		text += "; this was not charged: the " + paid + " USD are for calls before, such as looking up a name"
	}
	if !f.asJSON {
		fmt.Fprintln(to, "parley:", strings.ReplaceAll(text, "\n", "\n    "))
		if f.paid > 0 && !uncharged {
			fmt.Fprintln(to, "paid", paid, "USD")
		}
		if f.Next != "" && !strings.Contains(text, f.Next) {
			fmt.Fprintln(to, "try:", agent.Reveal(f.Next))
		}
		return f.Exit
	}
	shown := object{"error": text, "code": f.Code, "charged": f.Charged, "retryable": f.Retryable, "paid_usd": paid}
	if f.Status != 0 {
		shown["status"] = f.Status
	}
	if f.RequestID != "" {
		shown["request_id"] = agent.PlainWord(f.RequestID)
	}
	if f.RetryAfter > 0 {
		shown["retry_after_seconds"] = f.RetryAfter.Seconds()
	}
	if f.Next != "" {
		shown["next"] = f.Next
	}
	_ = console.EncodeJSON(to, shown) // standard error may be closed
	return f.Exit
}
