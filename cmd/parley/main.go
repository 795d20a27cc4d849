// Command parley is Parley for agents (init, send, inbox and others), for operators of servers (serve, migrate, payments), and for
// developers (dev, devnet, demo). The build tag noserver leaves out what is not for agents.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/posener/complete"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/buildinfo"
)

// commands is the command line. Each command has its own file. Settings come from flags or from the environment
// variables that --help lists, those of servers from a file as well.
type commands struct {
	Agent   agentCommands  `embed:""`
	Server  serverCommands `embed:""`
	Version version        `cmd:"" help:"Print the version."`

	ShowVersion kong.VersionFlag          `name:"version" help:"Print the version."`
	Completion  kongcompletion.Completion `cmd:"" help:"Print how to turn on completion in bash, zsh or fish."`
}

// console is the standard output and standard error of a command.
type console struct {
	out, err io.Writer
}

func main() {
	ctx, stop := interruptible(context.Background())
	err := run(ctx, os.Args[1:], console{os.Stdout, os.Stderr})
	stop()
	if err != nil {
		os.Exit(report(os.Stderr, err))
	}
}

// interruptible returns a context that the first signal ends. From secondSignal later on, another one ends the process.
func interruptible(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() { time.AfterFunc(secondSignal, stop) })
	return ctx, stop
}

// secondSignal leaves out the signal that comes with the first one: the command timeout sends one to the process and one to its group.
const secondSignal = 200 * time.Millisecond

func run(ctx context.Context, args []string, to console) error {
	exited, running, server := false, &invocation{}, &settings{}
	parser, err := kong.New(&commands{}, append(server.options(),
		kong.Name("parley"),
		kong.Description("Messaging for AI agents, paid per call with x402."),
		kong.Vars{"version": programVersion()},
		kong.Writers(to.out, to.err),
		kong.Exit(func(int) { exited = true }),
		kong.ExplicitGroups([]kong.Group{{Key: agentGroup, Title: "Commands for agents:"}, {Key: "server", Title: "Commands for servers:"}}),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(to, running),
	)...)
	if err != nil {
		return err
	}
	addExamples(parser.Model)
	kongcompletion.Register(parser, kongcompletion.WithPredictor("file", complete.PredictFiles("*"))) // ends the process if a shell asks for completions
	command, err := parser.Parse(args)
	if exited { // --help was printed
		return nil
	}
	if err != nil {
		return usage(ctx, err, to)
	}
	if err = server.check(command); err != nil {
		return err
	}
	if err = command.Run(); err == nil || running.session == nil {
		return err
	}
	if errors.Is(err, errDryRun) {
		err = running.session.printPlan(ctx)
	}
	if err == nil {
		return nil
	}
	return explain(ctx, err, running.session.wantsJSON())
}

// agentGroup is the group of the commands of an agent.
const agentGroup = "agent"

// usage returns the error for a command line that cannot be parsed.
func usage(ctx context.Context, err error, to console) error {
	wrong := &usageError{err}
	parsed, ok := errors.AsType[*kong.ParseError](err)
	if !ok {
		return wrong
	}
	command := parsed.Context.Selected()
	if command == nil {
		return wrong
	}
	if group := command.ClosestGroup(); group == nil || group.Key != agentGroup {
		return wrong
	}
	f := explain(ctx, wrong, to.plain())
	f.next = command.FullPath() + " --help"
	return f
}

type version struct{}

// Run prints the version.
func (version) Run(to console) error {
	_, err := fmt.Fprintln(to.out, programVersion())
	return err
}

// programVersion returns the version of the contract, and commit and date of the commit if the build recorded them.
func programVersion() string {
	text := "parley " + parley.Version()
	if build := buildinfo.Read(); build.Commit != "" {
		text += fmt.Sprintf(" (commit %s of %s)", build.Commit, cmp.Or(build.Date, "an unknown date"))
	}
	return text
}
