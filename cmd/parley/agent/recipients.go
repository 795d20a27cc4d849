package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// strangerError means that a recipient is held, or neither a contact nor somebody who wrote first.
type strangerError struct{ to agent.Contact }

func (e *strangerError) Error() string {
	problem := "is not in the contacts and has not written"
	switch {
	case e.to.Held:
		return fmt.Sprintf("%[1]s is held, so nothing is written to it; a person can end that with: parley contacts trust %[1]s", e.to)
	case e.to.Wrote:
		problem = "wrote first, but is not trusted, which members of a group chat of yours must be"
	}
	return fmt.Sprintf("%[1]s %[2]s; add it with: parley contacts add %[1]s, or write to anyone with --anyone", e.to, problem)
}

// contact returns the contact for a name or an id of one of these kinds. A dry run looks nothing up that costs money.
func (s *session) contact(ctx context.Context, to string, kinds ...string) (agent.Contact, error) {
	if s.pay.DryRun {
		contacts, err := s.agent.Contacts()
		if err != nil {
			return agent.Contact{}, err
		}
		to = contacts.Address(to, kinds...)
		found, err := contacts.Find(to)
		if err != nil {
			return agent.Contact{}, console.Usage(err)
		}
		if found == nil {
			return s.planLookup(ctx, to)
		}
		return *found, nil
	}
	found, err := s.agent.Resolve(ctx, to, kinds...)
	if ambiguous, ok := errors.AsType[*agent.AmbiguousError](err); ok {
		return agent.Contact{}, console.Usage(ambiguous)
	}
	if err != nil {
		return agent.Contact{}, err
	}
	if kinds != nil && !slices.Contains(kinds, found.Kind) {
		return agent.Contact{}, console.Usagef("%s is of the kind %s; this command needs: %s", found, found.Kind, strings.Join(kinds, ", "))
	}
	return found, nil
}

// placeholders are ids of the right form in the arguments of a dry run.
var placeholders = map[string]string{
	agent.KindAgent: "agent_" + noID, agent.KindGroup: "chat_" + noID, agent.KindChannel: "channel_" + noID,
}

const noID = "00000000000000000000000000"

// planLookup notes that a name would be looked up.
func (s *session) planLookup(ctx context.Context, to string) (agent.Contact, error) {
	operation, unknown := "getAgentProfile", agent.Contact{ID: placeholders[agent.KindAgent], Kind: agent.KindAgent, Name: to}
	switch {
	case strings.HasPrefix(to, "#"):
		operation, unknown = "searchChannels", agent.Contact{ID: placeholders[agent.KindChannel], Kind: agent.KindChannel, Name: to}
	case strings.HasPrefix(to, "channel_"):
		return agent.Contact{ID: to, Kind: agent.KindChannel}, nil
	case strings.HasPrefix(to, "agent_"):
		return agent.Contact{ID: to, Kind: agent.KindAgent}, nil
	case strings.HasPrefix(to, "chat_"):
		operation, unknown = "getGroupChat", agent.Contact{ID: to, Kind: agent.KindGroup}
	}
	o, err := s.agent.Operation(operation)
	if err != nil {
		return agent.Contact{}, err
	}
	s.plan(ctx, o, nil, nil)
	s.unknown = append(s.unknown, unknown)
	return unknown, nil
}

// agentIDs returns the ids of agents that are named.
func (s *session) agentIDs(ctx context.Context, names []string) ([]any, error) {
	ids := []any{}
	for _, name := range names {
		found, err := s.contact(ctx, name, agent.KindAgent)
		if err != nil {
			return nil, err
		}
		ids = append(ids, found.ID)
	}
	return ids, nil
}

// mayReach returns a [*strangerError] if a call sends something to somebody whom this agent does not write to: with --anyone only to who is
// held. A person may write to anyone.
func (s *session) mayReach(operation string, arguments object) error {
	if s.Person() {
		return nil
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	// What members write in a group chat that this agent began is shown.
	members := operation == "createGroupChat" || operation == "editGroupChat"
	for _, to := range append(contacts, s.unknown...).Recipients(operation, arguments) {
		if to.Held || !s.anyone && (!to.Known() || members && !to.Trusted) {
			return &strangerError{to}
		}
	}
	return nil
}
