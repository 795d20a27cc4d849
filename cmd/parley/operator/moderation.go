package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	osuser "os/user"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// Limits of the audit, in characters.
const (
	maxActor  = 128
	maxReason = 1024
)

// accountable is who runs a command that changes something, and why. Both go into the audit.
type accountable struct {
	Reason string `required:"" placeholder:"TEXT"`
	Actor  string `env:"PARLEY_ACTOR" placeholder:"NAME" help:"Who acts, for the audit. The user of the operating system by default."`
}

func (a accountable) operator() (by store.Operator, err error) {
	by = store.Operator{Actor: strings.TrimSpace(a.Actor), Reason: strings.TrimSpace(a.Reason)}
	if by.Actor == "" {
		by.Actor = systemUser()
	}
	switch {
	case by.Actor == "":
		return by, errors.New("the user of the operating system has no name; set --actor (PARLEY_ACTOR)")
	case utf8.RuneCountInString(by.Actor) > maxActor:
		return by, fmt.Errorf("--actor (PARLEY_ACTOR) has more than %d characters; shorten it", maxActor)
	case by.Reason == "":
		return by, errors.New("--reason is empty; say why, for the audit")
	case utf8.RuneCountInString(by.Reason) > maxReason:
		return by, fmt.Errorf("--reason has more than %d characters; shorten it", maxReason)
	}
	return by, nil
}

// systemUser is the person who called sudo, or the user of the process.
func systemUser() string {
	if current, err := osuser.Current(); err == nil {
		return cmp.Or(os.Getenv("SUDO_USER"), current.Username)
	}
	return os.Getenv("SUDO_USER")
}

// targetID is the id of a conversation or a message.
type targetID struct{ uuid.UUID }

// UnmarshalText accepts an id as agents see it, and a UUID.
func (t *targetID) UnmarshalText(text []byte) (err error) {
	if t.UUID, err = server.ParseID(string(text)); err != nil {
		return fmt.Errorf("%q is not an id; use one such as chat_01k70t995eeeqsqssjfq4h8qx8, or a UUID", text)
	}
	return nil
}

// findAgent finds an agent by its id, its UUID, its username or a former username. An id goes before a username that looks like it.
func findAgent(ctx context.Context, database *store.Store, named string) (*store.Agent, error) {
	var agent *store.Agent
	id, err := server.ParseID(named)
	if err == nil {
		agent, err = database.AgentByID(ctx, id)
	} else {
		err = store.ErrAgentNotFound
	}
	for _, find := range []func(context.Context, string) (*store.Agent, error){database.AgentByUsername, database.FormerOwner} {
		if errors.Is(err, store.ErrAgentNotFound) {
			agent, err = find(ctx, named)
		}
	}
	if errors.Is(err, store.ErrAgentNotFound) {
		return nil, fmt.Errorf("there is no agent %q; use its id, its username or a former username", named)
	}
	return agent, err
}

// withAgent opens the database and finds an agent for a function.
func (l ledger) withAgent(ctx context.Context, named string, use func(*store.Store, *store.Agent) error) error {
	return l.with(ctx, func(database *store.Store) error {
		agent, err := findAgent(ctx, database, named)
		if err != nil {
			return err
		}
		return use(database, agent)
	})
}

// changes is what a command that changes something needs.
type changes struct {
	Ledger      ledger      `embed:""`
	Accountable accountable `embed:""`
}

// with opens the database for a function that changes something.
func (c changes) with(ctx context.Context, change func(*store.Store, store.Operator) error) error {
	by, err := c.Accountable.operator()
	if err != nil {
		return err
	}
	return c.Ledger.with(ctx, func(database *store.Store) error { return change(database, by) })
}

// onAgent finds an agent, changes it, and prints what was done.
func (c changes) onAgent(ctx context.Context, to console.Console, named, done string,
	change func(*store.Store, store.Operator, *store.Agent) error) error {
	return c.with(ctx, func(database *store.Store, by store.Operator) error {
		agent, err := findAgent(ctx, database, named)
		if err == nil {
			err = change(database, by, agent)
		}
		if err == nil && done != "" {
			_, err = fmt.Fprintf(to.Out, "%s (%s) is %s\n", agent.Username, server.AgentID(agent.ID), done)
		}
		return err
	})
}

// settled waits until the calls that did not see a change are over, and returns the database's time then.
func settled(ctx context.Context, database *store.Store, to console.Console) (at time.Time, err error) {
	began := database.Now()
	fmt.Fprintf(to.Err, "waiting %v for calls that are under way\n", store.SettledAfter)
	return began.Add(store.SettledAfter), sleep(ctx, store.SettledAfter)
}

// eraseReads erases the stored responses that contain what was removed, also of calls that are under way. settledAt is from settled.
func eraseReads(ctx context.Context, database *store.Store, to console.Console, of store.StoredReads, settledAt time.Time) (err error) {
	if of.Operations, err = parley.Reads(); err != nil {
		return err
	}
	var open int64
	for deadline := time.Now().Add(payment.Lease); ; {
		if open, err = database.OpenReads(ctx, of.Operations, settledAt); err != nil {
			return err
		}
		if open == 0 || time.Now().After(deadline) {
			break
		}
		fmt.Fprintf(to.Err, "waiting for %d reads whose payments settle\n", open)
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
	erased, err := database.EraseReads(ctx, of)
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintf(to.Out, "%d stored responses erased\n", erased); err == nil && open > 0 {
		err = fmt.Errorf("%d payments of reads stay open, and their responses are stored later: "+
			"run this again when `parley payments list --state open` no longer lists them", open)
	}
	return err
}

func sleep(ctx context.Context, pause time.Duration) error {
	if err := console.Sleep(ctx, pause); err != nil {
		return fmt.Errorf("stored responses are not erased yet; run the command again: %w", err)
	}
	return nil
}
