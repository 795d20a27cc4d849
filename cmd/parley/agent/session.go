package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/itchyny/gojq"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/x402"
)

// agentFlags are the flags of all commands of an agent.
type agentFlags struct {
	JSON      bool   `name:"json" help:"Print one JSON object. This is the default if the output is not a terminal." group:"common"`
	Verbose   bool   `help:"Print each request on standard error: method, path, status, duration and payment." group:"common"`
	JQ        string `name:"jq" placeholder:"EXPR" help:"Filter the JSON object with a jq expression." group:"common"`
	Home      string `env:"PARLEY_HOME" placeholder:"FOLDER" predictor:"folder" group:"common"`
	ServerURL string `name:"server" env:"PARLEY_SERVER" placeholder:"URL" group:"common"`
	Secrets   string `env:"PARLEY_SECRETS" placeholder:"PLACE" predictor:"place" group:"common"`

	Timeout time.Duration `placeholder:"DURATION" group:"common"`
}

// payFlags are the flags of commands that pay.
type payFlags struct {
	MaxUSD string `name:"max-usd" placeholder:"USD" help:"Do not make a call that costs more."`
	DryRun bool   `help:"Show what would be done and what it costs. Spend nothing."`
	Key    filled `placeholder:"TEXT"`
}

// filled is the value of a flag that may not be empty, as that of a variable which is not set.
type filled string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (f *filled) UnmarshalText(text []byte) error {
	if *f = filled(text); *f == "" {
		return errors.New("the value is empty")
	}
	return nil
}

// recipientFlags are the flags of commands that send something to others.
type recipientFlags struct {
	Anyone bool `help:"Also write to agents and conversations that are neither contacts nor have written first."`
}

// AfterApply adds the flags to the session.
func (f *recipientFlags) AfterApply(running *Invocation) error { //nolint:unparam // kong calls it
	running.session.anyone = f.Anyone
	return nil
}

// Invocation is the run of a command. Its session is nil for commands of a server.
type Invocation struct {
	session *session
	calls   *agent.Command
}

// NewInvocation returns an invocation that begins now, and the context of its calls.
func NewInvocation(ctx context.Context) (context.Context, *Invocation) {
	ctx, calls := agent.BeginCommand(ctx)
	return ctx, &Invocation{calls: calls}
}

// AfterApply makes the session of the command.
func (f *agentFlags) AfterApply(command *kong.Context, to console.Console, running *Invocation) error {
	s := &session{flags: f, command: console.CommandName(command.Selected()), Console: to, rawErr: to.Err,
		initFlags: func() string { return "" }}
	s.findMentions(command.Model)
	s.Err, s.calls = &revealing{Writer: to.Err, change: s.runnable}, running.calls
	said := &progress{to: s.Err, verbose: f.Verbose}
	s.calls.Requested, s.calls.Waiting = said.requested, said.waiting
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

// AfterApply adds the flags to the session. They come after the common flags in each command.
func (f *payFlags) AfterApply(running *Invocation) error {
	running.session.pay = *f
	if f.MaxUSD == "" {
		return nil
	}
	most, err := console.ParseUSD(f.MaxUSD)
	if err != nil {
		return fmt.Errorf("--max-usd: %w", err)
	}
	running.calls.MaxPrice = &most
	return nil
}

// session is a command of an agent: its settings, and its wallet once it is open.
type session struct {
	console.Console
	rawErr io.Writer // standard error, for what commands of the user print
	flags  *agentFlags
	pay    payFlags
	anyone bool // recipients may be strangers
	query  *gojq.Query

	command    string // such as "group add"
	home       string
	config     agentConfig
	secrets    agent.Secrets
	newSecrets bool
	keyPlace   string // where the wallet's key is
	agent      *agent.Agent
	calls      *agent.Command  // what the command pays
	finished   bool            // open payments were looked at
	seen       []*agent.Result // that the output will contain
	planned    []plan          // of a dry run
	unknown    agent.Contacts  // that a dry run did not look up
	mentions   *regexp.Regexp  // of commands in texts
	initFlags  func() string   // that parley init was given
}

// open opens the wallet that parley init made, or the one that the environment names.
func (s *session) open(ctx context.Context) error {
	if err := s.load(); err != nil {
		return err
	}
	signer, _, err := s.externalSigner()
	if err != nil {
		return err
	}
	if signer == nil && s.config.Address == "" {
		return errNoWallet
	}
	place, err := s.choosePlace(false)
	if err != nil {
		return err
	}
	if err := s.openSecrets(place); err != nil {
		return err
	}
	if signer, err = s.loadSigner(); err != nil {
		return err
	}
	if err := s.openAgent(signer); err != nil {
		return err
	}
	if s.config.Username == "" { // parley init did not create the account, but perhaps the MCP server
		if own, err := s.agent.Own(ctx); err == nil && own != nil {
			s.config.Username = own.Username
		}
	}
	agreed := s.agent.Server()
	if named := strings.TrimSuffix(s.flags.ServerURL, "/"); named != "" && agreed != "" && named != agreed {
		return console.Usagef(
			"this wallet has agreed to the terms of %s, not of %s; agree to others with: parley init", agreed, named)
	}
	return nil
}

// load reads the settings.
func (s *session) load() (err error) {
	if s.home, err = agentHome(s.flags.Home); err != nil {
		return err
	}
	if err := agent.CheckFolder(s.home); err != nil {
		return err
	}
	s.config, err = loadConfig(s.home)
	return err
}

func (s *session) openSecrets(place string) (err error) {
	if place == agent.PlaceEncrypted {
		_, err := os.Stat(agent.SecretsFile(place, s.home))
		s.newSecrets = errors.Is(err, fs.ErrNotExist)
	}
	if s.secrets, err = agent.OpenSecrets(place, s.home, s.passphrase); err != nil {
		return console.Usage(err) // of --secrets
	}
	return nil
}

func (s *session) openAgent(signer x402.Signer) (err error) {
	settings := agent.Settings{Folder: s.home, Signer: signer, Secrets: s.secrets, Unchecked: s.command == "wallet check"}
	if folder, err := os.UserCacheDir(); err == nil {
		settings.Witness = filepath.Join(folder, "parley")
	}
	if chain := s.chain(); chain != nil {
		settings.Chain = chain
	}
	s.agent, err = agent.Open(settings)
	return err
}

// call makes a call of the contract. Its result counts as seen when the output is written. If a person runs the command, they can allow
// a call above the limits.
func (s *session) call(ctx context.Context, operation, peer string, arguments map[string]any) (*agent.Result, error) {
	o, err := s.agent.Operation(operation)
	if err != nil {
		return nil, console.Usagef("%w; parley prices lists all", err)
	}
	if err := o.Check(arguments); err != nil {
		return nil, s.wrongArguments(operation, err)
	}
	err = s.mayReach(operation, arguments)
	if s.pay.DryRun {
		s.plan(ctx, o, arguments, err)
		return nil, errDryRun
	}
	if err != nil {
		return nil, err
	}
	if o.Agreed > 0 {
		s.finishOpen(ctx)
	}
	options := agent.CallOptions{Peer: peer, Key: string(s.pay.Key)}
	result, err := s.agent.Call(ctx, operation, arguments, options)
	if limit, ok := errors.AsType[*agent.LimitError](err); ok && limit.Approval != "" && s.Person() {
		fmt.Fprintln(s.Err, limit)
		if noErr := s.decide("Allow it once?", "approve a payment", "parley wallet approve "+limit.Approval); noErr != nil {
			return nil, errors.Join(err, noErr)
		}
		if _, err := s.agent.Ledger().Approve(ctx, limit.Approval); err != nil {
			return nil, err
		}
		result, err = s.agent.Call(ctx, operation, arguments, options)
	}
	if err != nil {
		return nil, err
	}
	s.seen = append(s.seen, result)
	return result, nil
}

// finishTime limits how long a command waits for the payments of commands that were interrupted.
const finishTime = 5 * time.Second

// finishOpen finishes the payments of commands that were interrupted, once in a run. They count against the limits as long as they are
// open. If that fails, "parley wallet pending" tells why.
func (s *session) finishOpen(ctx context.Context) {
	if s.finished {
		return
	}
	s.finished = true
	ctx, cancel := context.WithTimeout(ctx, finishTime)
	defer cancel()
	if open, err := s.agent.Resume(ctx); open > 0 || err != nil {
		fmt.Fprintln(s.Err, "payments of other commands are open; parley wallet pending shows them")
	}
}

// plan is a call that a dry run does not make.
type plan struct {
	Operation string `json:"operation"`
	Summary   string `json:"summary"`
	Price     string `json:"price_usd"`
	Problem   string `json:"problem,omitempty"` // why it would not be paid now
}

// plan notes a call of a dry run. problem is why it would not be made, or nil.
func (s *session) plan(ctx context.Context, o agent.Priced, arguments object, problem error) {
	planned := plan{Operation: o.ID, Summary: o.Summary, Price: agent.USD(o.Agreed)}
	if problem == nil {
		problem = s.agent.Foresee(ctx, o.ID, arguments, agent.CallOptions{Key: string(s.pay.Key)})
	}
	if problem != nil {
		planned.Problem = s.runnable(problem.Error())
	}
	for _, to := range s.unknown {
		planned.Problem = strings.ReplaceAll(planned.Problem, to.ID, quoted(to.Name))
	}
	if limit, limited := errors.AsType[*agent.LimitError](problem); limited && limit.ForPerson() {
		planned.Problem += "; above the limits only a person can allow it"
	}
	s.planned = append(s.planned, planned)
}

// errDryRun ends a command before it pays or changes something.
var errDryRun = errors.New("dry run")

// chain returns the blockchain that the wallet pays on, or nil if no endpoint is known.
func (s *session) chain() *x402.Chain {
	if s.config.RPCURL == "" {
		return nil
	}
	return &x402.Chain{URL: s.config.RPCURL}
}
