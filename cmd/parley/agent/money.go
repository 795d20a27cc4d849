package agent

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/agent"
)

// finishedCalls returns the calls of interrupted commands that were charged since, each once. paid_usd includes them.
func (s *session) finishedCalls(ctx context.Context) []agent.Finished {
	if s.agent == nil {
		return nil
	}
	finished, err := s.agent.Finished(ctx)
	if err != nil {
		fmt.Fprintln(s.Err, "look for finished calls:", err)
	}
	return finished
}

// money is what a command adds to its output: what all its calls paid, as in the output of an error.
func (s *session) money(ctx context.Context) object {
	add := object{"paid_usd": agent.USD(s.calls.Charged())}
	if len(s.seen) == 0 && s.calls.Charged() == 0 {
		return add
	}
	for _, result := range s.seen {
		if result.Earlier {
			add["earlier"] = true
		}
	}
	if limits, left, _, err := s.agent.Ledger().Limits(ctx); err == nil {
		add["today_usd"], add["limit_usd"] = agent.USD(limits.PerDay-left.PerDay), agent.USD(limits.PerDay)
	}
	s.addReserved(ctx, add)
	return add
}

// addReserved adds what the day counts for refused calls, if there is any.
func (s *session) addReserved(ctx context.Context, to object) {
	if reserved, err := s.agent.Ledger().Refused(ctx); err == nil && reserved > 0 {
		to["reserved_usd"] = agent.USD(reserved)
	}
}

func (s *session) moneyLine(ctx context.Context) string {
	m := s.money(ctx)
	if m["today_usd"] == nil {
		return ""
	}
	line := fmt.Sprintf("paid %s USD · today %s of %s", m["paid_usd"], m["today_usd"], m["limit_usd"])
	if m["reserved_usd"] != nil {
		line += fmt.Sprintf(" (%s reserved for refused calls)", m["reserved_usd"])
	}
	if limits, _, _, err := s.agent.Ledger().Limits(ctx); err == nil && s.calls.Charged() > limits.PerCall {
		line += " without calls that a person approved"
	}
	if m["earlier"] != nil {
		line += " · the response of the same command, which was charged once"
	}
	return line
}
