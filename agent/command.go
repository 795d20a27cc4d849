package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// Command is one command of the command line, or one call of a tool: it may make several calls.
type Command struct {
	// Face writes what the command says. Nil is the command line.
	Face Face
	// Warn, if it is not nil, is told why a fetch failed that [Agent.Follow] repeats.
	Warn func(error)

	action  *Action // that runs
	began   time.Time
	charged atomic.Uint64
	mu      sync.Mutex
	results []string // payment identifiers of the responses that it has, also of those that another command paid
}

func (c *Command) face() Face { return cmp.Or[Face](c.Face, CommandLine{}) }

type commandKey struct{}

// BeginCommand returns a context whose calls belong to one command, also those of Resolve and Chat.
func BeginCommand(ctx context.Context) (context.Context, *Command) {
	command := &Command{began: time.Now()}
	return command.Continue(ctx), command
}

// Continue returns another context whose calls belong to the command, for one that waited for an answer.
func (c *Command) Continue(ctx context.Context) context.Context {
	return context.WithValue(ctx, commandKey{}, c)
}

// commandOf returns the command of a context, or one that begins now.
func commandOf(ctx context.Context) *Command {
	if command, ok := ctx.Value(commandKey{}).(*Command); ok {
		return command
	}
	_, command := BeginCommand(ctx)
	return command
}

// Charged returns what the calls of the command were charged, in atomic units, as far as that is known.
func (c *Command) Charged() uint64 { return c.charged.Load() }

func (c *Command) made(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results = append(c.results, id)
}

func (c *Command) had() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, _ := json.Marshal(append([]string{}, c.results...)) // texts; without any it is [], not null
	return string(text)
}
