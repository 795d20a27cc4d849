package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// ExitInterrupted is the exit code after a signal.
const ExitInterrupted = 130

type failure struct {
	*agent.Failure

	err    error
	asJSON bool
}

func (f *failure) Unwrap() error { return f.err }

func (s *session) failed(ctx context.Context, err error) error {
	f := explain(ctx, s.agent, err)
	f.asJSON = s.flags.JSON || s.query != nil || !console.IsTerminal(s.rawErr)
	if s.warning != "" {
		f.Message += "; " + s.warning
	}
	switch {
	case f.Question != "" && !s.tookInput:
		f.Next = s.again("--yes")
	case f.Next != "":
		f.Next = s.line(f.Next)
	case f.Retryable && !s.tookInput:
		f.Next = s.again("")
	}
	return f
}

func explain(ctx context.Context, a *agent.Agent, err error) *failure {
	f := &failure{err: err, Failure: a.Explain(ctx, err)}
	if _, usage := errors.AsType[*console.UsageError](err); usage {
		f.Exit, f.Code = agent.ExitUsage, "usage"
	}
	if f.Question != "" {
		f.Message += "; to confirm, run the same command with --yes"
	}
	if ctx.Err() != nil || errors.Is(err, console.ErrInterrupted) {
		f.Exit, f.Code, f.Charged, f.Retryable = ExitInterrupted, "interrupted", nil, true
	}
	return f
}

// What the parser says about a text that begins with a dash, and about a flag without a value.
var (
	dash    = regexp.MustCompile(`^unknown flag -([^-]|$)`)
	noValue = regexp.MustCompile(`^(--[a-z-]+): expected .* value`)
)

// Usage returns the error for a command line that cannot be parsed. The name of an unknown command is expected to be an agent's.
func Usage(ctx context.Context, err error, to console.Console) error {
	wrong := console.Usage(err)
	parsed, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return wrong
	}
	command := parsed.Context.Selected()
	if dash.MatchString(err.Error()) && command != nil {
		wrong = console.Usagef("%w; write -- before a text that begins with a dash, as in: parley send bob -- '- milk'", err)
	}
	if found := noValue.FindStringSubmatch(err.Error()); found != nil {
		wrong = console.Usagef("%s needs a value; one that begins with a dash is written %[1]s=VALUE", found[1])
	}
	if missing, ok := strings.CutPrefix(err.Error(), "expected \"<"); ok {
		wrong = console.Usagef("missing: <%s", strings.TrimSuffix(missing, `"`))
	}
	help := "--help"
	if command != nil {
		if group := command.ClosestGroup(); group == nil || group.Key != Group && group.Key != OtherGroup {
			return wrong
		}
		help = console.CommandName(command) + " --help"
	}
	if strings.HasPrefix(err.Error(), "expected one of") && !to.Plain() { // a noun alone
		return parsed.Context.PrintUsage(false)
	}
	return wrongly(ctx, wrong, to, parsed.Context.Args, help)
}

func wrongly(ctx context.Context, err error, to console.Console, args []string, next string) error {
	f := explain(ctx, nil, err)
	f.asJSON = !console.IsTerminal(to.Err) || slices.Contains(args, "--json")
	f.Next = "parley " + next
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
	f.Message = agent.Visible(f.Message) // a server may have written it
	if f.asJSON {
		_ = console.EncodeJSON(to, f.Fields(f.Next)) // standard error may be closed
		return f.Exit
	}
	fmt.Fprintln(to, "parley:", strings.ReplaceAll(f.Message, "\n", "\n    "))
	if f.Paid > 0 {
		fmt.Fprintln(to, "paid", agent.USD(f.Paid), "USD")
	}
	if f.Next != "" {
		fmt.Fprintln(to, "try:", agent.Reveal(f.Next))
	}
	return f.Exit
}
