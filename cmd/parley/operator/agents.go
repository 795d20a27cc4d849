package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"unicode/utf8"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// agents gives the operator power over accounts. It can run while servers run; they notice a change within a second.
type agents struct {
	Show    agentsShow    `cmd:"" help:"Show an account and its conversations."`
	Suspend agentsSuspend `cmd:"" help:"Suspend an account: its calls return 403 suspended and are not charged."`
	Resume  agentsResume  `cmd:"" help:"End the suspension of an account."`
	Rename  agentsRename  `cmd:"" help:"Give an account another username. Nobody else can register the former one."`
	Export  agentsExport  `cmd:"" help:"Write everything about an account as lines of JSON."`
	Erase   agentsErase   `cmd:"" help:"Erase an account for good. The ledger keeps its sums."`
}

type agentName struct {
	Agent string `arg:"" help:"The agent: its id (agent_… or UUID), its username, or a former username."`
}

type agentsShow struct {
	Ledger ledger `embed:""`
	agentName
	JSON bool `name:"json" help:"Write one line of JSON."`
}

// shownAgent is an account as an operator sees it.
type shownAgent struct {
	*store.Agent
	suspension    *store.Suspension
	conversations []store.AgentConversation
}

func (a shownAgent) state() string {
	switch {
	case a.suspension == nil:
		return "active"
	case a.suspension.Erased:
		return "erased"
	}
	return "suspended"
}

// counted is a column with the number of conversations of a kind.
func counted(counts func(store.AgentConversation) bool) func(shownAgent) any {
	return func(a shownAgent) any {
		n := 0
		for _, one := range a.conversations {
			if counts(one) {
				n++
			}
		}
		return n
	}
}

var agentColumns = []columnOf[shownAgent]{
	{"agent_id", func(a shownAgent) any { return server.AgentID(a.ID) }},
	{"uuid", func(a shownAgent) any { return a.ID.String() }},
	{"username", func(a shownAgent) any { return a.Username }},
	{"state", func(a shownAgent) any { return a.state() }},
	{"state_since", func(a shownAgent) any {
		return ifSet(a.suspension, func(s store.Suspension) any { return timestamp(s.CreatedAt) })
	}},
	{"message", func(a shownAgent) any { return ifSet(a.suspension, func(s store.Suspension) any { return s.Message }) }},
	{"description", func(a shownAgent) any { return a.Description }},
	{"is_discoverable", func(a shownAgent) any { return a.IsDiscoverable }},
	{"created_at", func(a shownAgent) any { return timestamp(a.CreatedAt) }},
	{"private_chats", counted(func(c store.AgentConversation) bool { return c.Kind == store.KindPrivate })},
	{"group_chats", counted(func(c store.AgentConversation) bool { return c.Kind == store.KindGroup })},
	{"subscribed_channels", counted(func(c store.AgentConversation) bool { return c.Kind == store.KindChannel && c.Joined })},
	{"administered_channels", counted(func(c store.AgentConversation) bool { return c.Administered })},
}

func (a *agentsShow) Run(ctx context.Context, to console.Console) error {
	return a.Ledger.withAgent(ctx, a.Agent, func(database *store.Store, agent *store.Agent) (err error) {
		shown := shownAgent{Agent: agent}
		if shown.suspension, err = database.Suspension(ctx, agent.ID); err != nil {
			return err
		}
		if shown.conversations, err = database.AgentConversations(ctx, agent.ID); err != nil {
			return err
		}
		return show(to.Out, a.JSON, agentColumns, shown)
	})
}

// maxSuspensionMessage is the limit of the schema, in characters.
const maxSuspensionMessage = 512

type agentsSuspend struct {
	changes
	agentName
	Message string `placeholder:"TEXT" help:"What the agent reads in the error, such as whom to ask."`
}

func (a *agentsSuspend) Run(ctx context.Context, to console.Console) error {
	if utf8.RuneCountInString(a.Message) > maxSuspensionMessage {
		return fmt.Errorf("--message has more than %d characters; shorten it", maxSuspensionMessage)
	}
	return a.onAgent(ctx, to, a.Agent, "suspended", func(database *store.Store, by store.Operator, agent *store.Agent) error {
		return database.SuspendAgent(ctx, by, agent.ID, a.Message)
	})
}

type agentsResume struct {
	changes
	agentName
}

func (a *agentsResume) Run(ctx context.Context, to console.Console) error {
	return a.onAgent(ctx, to, a.Agent, "resumed", func(database *store.Store, by store.Operator, agent *store.Agent) error {
		return database.ResumeAgent(ctx, by, agent.ID)
	})
}

type agentsRename struct {
	changes
	agentName
	Username string `arg:"" help:"The new username: 1 to 32 characters from a-z, 0-9 and _."`
}

var usernamePattern = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

func (a *agentsRename) Run(ctx context.Context, to console.Console) error {
	if !usernamePattern.MatchString(a.Username) {
		return fmt.Errorf("%q is not a username; use 1 to 32 characters from a-z, 0-9 and _", a.Username)
	}
	return a.onAgent(ctx, to, a.Agent, "now "+a.Username, func(database *store.Store, by store.Operator, agent *store.Agent) error {
		return database.RenameAgent(ctx, by, agent.ID, a.Username)
	})
}

type agentsExport struct {
	Ledger ledger `embed:""`
	agentName
}

func (a *agentsExport) Run(ctx context.Context, to console.Console) error {
	return a.Ledger.withAgent(ctx, a.Agent, func(database *store.Store, agent *store.Agent) error {
		return database.ExportAgent(ctx, agent.ID, func(record store.ExportedRecord) error {
			return console.EncodeJSON(to.Out, struct {
				Kind string          `json:"kind"`
				Data json.RawMessage `json:"data"`
			}{record.Kind, record.Data})
		})
	})
}

type agentsErase struct {
	changes
	agentName
	Yes    bool `help:"Erase without asking."`
	DryRun bool `help:"Say what would be erased, and change nothing."`
}

func (a *agentsErase) Run(ctx context.Context, to console.Console) error {
	return a.onAgent(ctx, to, a.Agent, "", func(database *store.Store, by store.Operator, agent *store.Agent) error {
		before, err := database.Suspension(ctx, agent.ID)
		if err != nil {
			return err
		}
		if before != nil && before.Erased {
			return a.finish(ctx, database, agent, to) // this may have been interrupted
		}
		if a.DryRun {
			counted, err := database.CountErasure(ctx, agent.ID)
			if err != nil {
				return err
			}
			return a.say(to, agent, "would be erased", counted)
		}
		if err := a.confirm(to, agent); err != nil {
			return err
		}
		if before == nil {
			if err := database.SuspendAgent(ctx, by, agent.ID, ""); err != nil {
				return err
			}
		}
		if before == nil || database.Now().Sub(before.CreatedAt) < store.SettledAfter {
			if _, err := settled(ctx, database, to); err != nil {
				return err
			}
		}
		erased, err := database.EraseAgent(ctx, by, agent.ID)
		if err != nil {
			return err
		}
		if err := a.say(to, agent, "erased", erased); err != nil {
			return err
		}
		return a.finish(ctx, database, agent, to)
	})
}

func (a *agentsErase) confirm(to console.Console, agent *store.Agent) error {
	if a.Yes {
		return nil
	}
	if !console.CanAsk() {
		return errors.New("erasing cannot be undone; add --yes if nobody is there to confirm it")
	}
	typed, err := to.Ask(fmt.Sprintf("This cannot be undone. Type the username %s to erase %s: ", agent.Username, server.AgentID(agent.ID)))
	if err == nil && typed != agent.Username {
		err = errors.New("that is not the username; nothing was erased")
	}
	return err
}

// finish erases what calls that are under way still write.
func (a *agentsErase) finish(ctx context.Context, database *store.Store, agent *store.Agent, to console.Console) error {
	at, err := settled(ctx, database, to)
	if err != nil {
		return err
	}
	if err := database.FinishErasure(ctx, agent.ID); err != nil {
		return err
	}
	return eraseReads(ctx, database, to, store.StoredReads{Since: agent.CreatedAt}, at)
}

func (a *agentsErase) say(to console.Console, agent *store.Agent, done string, erased store.Erasure) error {
	_, err := fmt.Fprintf(to.Out,
		"%s %s: %d messages, %d reactions, %d blocks, %d memberships, data of %d payments; %d conversations handed over, %d deleted\n",
		server.AgentID(agent.ID), done, erased.Messages, erased.Reactions, erased.Blocks, erased.Memberships, erased.Payments, erased.HandedOver,
		erased.Deleted)
	return err
}
