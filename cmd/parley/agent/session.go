package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/itchyny/gojq"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/x402"
)

// agentFlags are the flags of all commands of an agent.
type agentFlags struct {
	JSON      bool   `name:"json" group:"common"`
	JQ        string `name:"jq" placeholder:"EXPR" group:"common"`
	Yes       bool   `name:"yes" group:"common"`
	Key       string `name:"key" placeholder:"TEXT" group:"common"`
	Home      string `name:"home" env:"PARLEY_HOME" placeholder:"FOLDER" predictor:"folder" group:"common"`
	ServerURL string `name:"server" env:"PARLEY_SERVER" placeholder:"URL" group:"common"`
	Secrets   string `name:"secrets" env:"PARLEY_SECRETS" placeholder:"PLACE" predictor:"place" group:"common"`
}

// Invocation is the run of a command. Its session is nil for commands of a server.
type Invocation struct {
	console console.Console
	args    []string
	session *session
	calls   *agent.Command
}

// NewInvocation returns an invocation that begins now, and the context of its calls.
func NewInvocation(ctx context.Context, to console.Console, args []string) (context.Context, *Invocation) {
	ctx, calls := agent.BeginCommand(ctx)
	return ctx, &Invocation{console: to, args: args, calls: calls}
}

// AfterApply makes the session of the command.
func (f *agentFlags) AfterApply(command *kong.Context, to console.Console, running *Invocation) error {
	s := &session{flags: f, Console: to, rawErr: to.Err, args: running.args, calls: running.calls}
	s.Err, s.calls.Face = revealing{to.Err}, face{s: s}
	if !console.IsTerminal(to.Err) {
		s.Err = io.Discard // a program gets the fields of the output or of the error
	}
	running.session = s
	command.Bind(s)
	if f.JQ == "" {
		return nil
	}
	query, err := gojq.Parse(f.JQ)
	if err != nil {
		return fmt.Errorf("--jq: %w", err)
	}
	s.query = query
	return nil
}

type session struct {
	console.Console           // its standard error is for people
	rawErr          io.Writer // standard error
	args            []string  // the command line
	flags           *agentFlags
	query           *gojq.Query

	home     string
	config   agentConfig
	secrets  agent.Secrets
	keyPlace string // where the wallet's key is
	agent    *agent.Agent
	calls    *agent.Command // what the command pays

	tookInput bool   // an argument came from standard input
	warning   string // that no ledger was found
}

// Run runs the command.
func (i *Invocation) Run(ctx context.Context, command *kong.Context) (err error) {
	s := i.session
	if s == nil {
		err := command.Run()
		if group := command.Selected().ClosestGroup(); err != nil && group != nil && group.Key == OtherGroup {
			return wrongly(ctx, err, i.console, i.args, "--help")
		}
		return err
	}
	a := agent.ActionNamed(console.CommandName(command.Selected()))
	err = s.check(command, a)
	switch {
	case err != nil:
	case a.Run != nil:
		err = s.act(ctx, a, argumentsOf(command.Selected(), a))
	default:
		err = s.confirming(func() error { return command.Run() })
	}
	if err != nil {
		return s.failed(ctx, err)
	}
	if s.warning != "" {
		s.warn(s.warning)
	}
	return nil
}

// check checks what is common to all command lines.
func (s *session) check(command *kong.Context, a *agent.Action) error {
	if !utf8.ValidString(strings.Join(command.Args, "")) {
		return agent.Usagef("an argument has bytes that are not UTF-8")
	}
	for _, part := range command.Path { // an empty value is that of a variable that is not set
		if part.Flag != nil && part.Flag.Group != nil && part.Flag.Group.Key == commonGroup && fmt.Sprint(command.FlagValue(part.Flag)) == "" {
			return agent.Usagef("--%s is empty", part.Flag.Name)
		}
	}
	if s.flags.Key != "" && (a.Run == nil || !a.Changes || a.Price == "free") {
		return agent.Usagef("parley %s takes no --key: it changes nothing that is paid for", a.Name)
	}
	return nil
}

// warn tells something beside the output: a line for people, or a JSON object.
func (s *session) warn(text string) {
	if s.Err == io.Discard {
		_ = console.EncodeJSON(s.rawErr, object{"warning": text}) // standard error may be closed
	} else {
		fmt.Fprintln(s.Err, "parley: warning:", text)
	}
}

func (s *session) act(ctx context.Context, a *agent.Action, arguments map[string]any) error {
	for _, p := range a.Params {
		if p.Stdin {
			if err := s.takeInput(arguments, p); err != nil {
				return err
			}
		}
	}
	err := s.open(ctx)
	if errors.Is(err, errNoWallet) && a.Name == "prices" {
		s.agent, err = agent.WithoutWallet()
	}
	if err != nil {
		return err
	}
	run := &agent.Run{Agent: s.agent, Context: ctx, Args: arguments, Key: s.flags.Key}
	defer run.Release()
	if arguments["follow"] == true {
		if arguments, err = a.Take(agent.CommandLine{}, arguments); err != nil {
			return err
		}
		return s.follow(ctx, arguments)
	}
	return s.confirming(func() error {
		run.Confirmed = s.flags.Yes
		value, err := a.Do(run)
		if err != nil {
			return err
		}
		return s.print(run, value)
	})
}

// confirming runs something. What is dear or final a terminal is asked to confirm, and then it runs again.
func (s *session) confirming(run func() error) error {
	err := run()
	if asks, ok := errors.AsType[*agent.Failure](err); !ok || asks.Question == "" || !console.CanAsk() {
		return err
	} else if yes, err := s.Confirm(asks.Question); err != nil || !yes {
		return cmp.Or[error](err, &agent.Failure{Exit: agent.ExitLimit, Code: "declined", Message: "not confirmed; nothing was done"})
	}
	s.flags.Yes = true
	return run()
}

// maxInput is longer than any message or call.
const maxInput = 1 << 20

// takeInput takes standard input for an argument that is - or missing. A byte order mark is no part of the text.
func (s *session) takeInput(arguments map[string]any, p agent.Param) error {
	given, there := arguments[p.Name].(string)
	if there && given != "-" || !there && (!p.Required || console.IsTerminal(os.Stdin)) {
		return nil
	}
	s.tookInput = true
	content, err := io.ReadAll(io.LimitReader(os.Stdin, maxInput)) // what is cut is too long for any argument
	if err != nil {
		return fmt.Errorf("read standard input: %w", err)
	}
	arguments[p.Name] = strings.TrimPrefix(string(content), "\ufeff")
	return nil
}

// open opens the wallet that parley init made, or the one that the environment names.
func (s *session) open(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	if err := s.openSecrets(); err != nil {
		return err
	}
	signer, err := s.loadSigner()
	if err != nil {
		return err
	}
	if err := s.openAgent(signer); err != nil {
		return err
	}
	if s.agent.Server() == "" && s.config.Username != "" { // the ledger was lost, and the terms with it
		terms, err := s.agent.Terms(ctx, s.config.Server, s.config.Network)
		if err == nil {
			err = s.agent.Agree(terms, false)
		}
		if err != nil {
			return err
		}
	}
	agreed := s.agent.Server()
	if named := strings.TrimSuffix(s.flags.ServerURL, "/"); named != "" && agreed != "" && named != agreed {
		return agent.Usagef("this wallet has agreed to the terms of %s, not of %s: leave out --server and PARLEY_SERVER, or name another "+
			"folder with --home", agreed, named)
	}
	return nil
}

func (s *session) load() (err error) {
	if s.home, err = agentHome(s.flags.Home); err == nil {
		err = agent.CheckFolder(s.home)
	}
	if err != nil {
		return err
	}
	s.config, err = loadConfig(s.home)
	return err
}

func (s *session) openAgent(signer x402.Signer) (err error) {
	settings := agent.Settings{Folder: s.home, Signer: signer, Secrets: s.secrets}
	if s.config.RPCURL != "" {
		settings.Chain = &x402.Chain{URL: s.config.RPCURL}
	}
	ledger := agent.LedgerFile(s.home, signer.Address())
	if _, err := os.Stat(ledger); errors.Is(err, os.ErrNotExist) && s.config.Username != "" {
		s.warning = ledger + " is missing, so what was paid before is not known; a new ledger begins"
	}
	s.agent, err = agent.Open(settings)
	return err
}
