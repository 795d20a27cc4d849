// Command parley is Parley for agents (init, send, inbox and others), for operators of servers (serve, migrate, payments), and for
// developers (dev, devnet, demo). The build tag noserver leaves out what is not for agents.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	"github.com/posener/complete"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// commands is the command line. Each command has its own file. Settings come from flags or from the environment
// variables that --help lists; settings of servers also come from a file.
type commands struct {
	Server  serverCommands  `embed:""`
	Help    console.Help    `cmd:"" group:"other" help:"Print the help of a command."`
	Version console.Version `cmd:"" group:"other" help:"Print the version."`

	ShowVersion kong.VersionFlag          `name:"version" help:"Print the version."`
	Completion  kongcompletion.Completion `cmd:"" group:"other" help:"Print how to turn on completion in bash, zsh or fish."`
}

func main() {
	ctx, stop := interruptible(context.Background())
	err := run(ctx, os.Args[1:], console.Console{Out: os.Stdout, Err: os.Stderr})
	stop()
	if err != nil {
		os.Exit(agent.Report(os.Stderr, err))
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

func run(ctx context.Context, args []string, to console.Console) error {
	ctx, running := agent.NewInvocation(ctx, to, args)
	exited, server := false, &serverSettings{}
	parser, err := newParser(server,
		kong.Description("Messaging for AI agents, paid per call with x402."),
		kong.Vars{"version": console.ProgramVersion()},
		kong.Writers(to.Out, to.Err),
		kong.Exit(func(int) { exited = true }),
		kong.Help(agent.PrintHelp),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, FlagsLast: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(to, running, agent.Topics),
	)
	if err != nil {
		return err
	}
	parser.Model.Detail = agent.FirstSteps
	if completed, err := completeLine(parser); completed || err != nil {
		return err
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(console.FlagsLast(args, agent.CommonFlags(parser.Model)))
	if exited { // --help was printed
		return nil
	}
	if err != nil {
		return agent.Usage(ctx, err, to)
	}
	if err = server.Check(command); err != nil {
		return err
	}
	return running.Run(ctx, command)
}

// completeLine writes completions, if a shell asks for them.
func completeLine(parser *kong.Kong) (completed bool, err error) {
	commands, err := kongcompletion.Command(parser, kongcompletion.WithPredictors(map[string]complete.Predictor{
		"file": complete.PredictFiles("*"), "folder": complete.PredictDirs("*"), "place": complete.PredictSet(agent.Places...),
		"operation": complete.PredictFunc(func(complete.Args) []string { return agent.OperationNames() }),
		"command":   complete.PredictFunc(func(complete.Args) []string { return topics(parser) }),
	}))
	if err != nil {
		return false, err
	}
	for _, flag := range agent.CommonFlags(parser.Model) { // they may stand before the command
		commands.GlobalFlags["--"+flag.Name] = commands.Sub["init"].GlobalFlags["--"+flag.Name]
	}
	asked := complete.New(parser.Model.Name, commands)
	asked.Out = parser.Stdout
	return asked.Complete(), nil
}

// topics returns what parley help tells about.
func topics(parser *kong.Kong) (names []string) {
	for _, command := range parser.Model.Children {
		names = append(names, command.Name)
	}
	for _, topic := range agent.Topics {
		names = append(names, topic.Name)
	}
	return names
}

// rank is 0 for the commands for agents, which the help lists first.
func rank(command *kong.Node) int {
	if command.Group != nil && command.Group.Key == agent.Group {
		return 0
	}
	return 1
}

// newParser returns the parser of the command line.
func newParser(server *serverSettings, options ...kong.Option) (*kong.Kong, error) {
	addHelp := func(parser *kong.Kong) error {
		slices.SortStableFunc(parser.Model.Children, func(a, b *kong.Node) int { return rank(a) - rank(b) })
		for _, texts := range helps {
			console.AddHelp(parser.Model, texts)
		}
		return nil
	}
	groups := append(groups[:len(groups):len(groups)], kong.Group{Key: agent.OtherGroup, Title: "Other commands:"})
	options = append(options, kong.Name("parley"), kong.ExplicitGroups(groups), kong.PostBuild(addHelp))
	options = append(options, agent.Commands()...)
	return kong.New(&commands{}, append(options, server.Options()...)...)
}
