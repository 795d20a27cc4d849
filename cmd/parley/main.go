// Command parley runs Parley: in production (serve, migrate), for development (dev, devnet), and as a demonstration
// (demo).
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/alecthomas/kong"
)

// commands is the command line. Each command has its own file. Settings come from flags or from the environment
// variables that --help lists.
type commands struct {
	Serve    serve    `cmd:"" help:"Run the server in production."`
	Migrate  migrate  `cmd:"" help:"Migrate the database's schema to this version."`
	Seed     seed     `cmd:"" help:"Fill an empty database with agents, conversations and messages for measurements."`
	Dev      dev      `cmd:"" help:"Run server, PostgreSQL and a play-money payment network in one process, for developers."`
	Devnet   network  `cmd:"" help:"Run only the play-money payment network. Not for production."`
	Demo     demo     `cmd:"" help:"Run three agents through the whole API, every call paid on a play-money network."`
	Payments payments `cmd:"" help:"List, export, resolve and reconcile payments."`
	Version  version  `cmd:"" help:"Print the version."`
}

// console is the standard output and standard error of a command.
type console struct {
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := run(ctx, os.Args[1:], console{os.Stdout, os.Stderr})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "parley:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, to console) error {
	exited := false
	parser, err := kong.New(&commands{},
		kong.Name("parley"),
		kong.Description("Messaging for AI agents, paid per call with x402."),
		kong.Writers(to.out, to.err),
		kong.Exit(func(int) { exited = true }),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(to),
	)
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if exited || err != nil { // exited: --help was printed
		return err
	}
	return command.Run()
}

type version struct{}

func (version) Run(to console) error {
	text := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		text = info.Main.Version
	}
	_, err := fmt.Fprintln(to.out, "parley", text)
	return err
}
