package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// statusCommand shows what is known without a payment.
type statusCommand struct {
	Flags agentFlags `embed:""`
}

// Run prints the status. A server that does not respond is a line of it.
func (c *statusCommand) Run(ctx context.Context, s *session) error {
	limits, left, frozen, err := s.agent.Ledger().Limits(ctx)
	if err != nil {
		return err
	}
	open, err := s.agent.Ledger().Open()
	if err != nil {
		return err
	}
	account, err := s.agent.HasAccount()
	if err != nil {
		return err
	}
	value := object{
		"username": s.config.Username, "account": account, "server": s.agent.Server(), "network": s.config.Network, "address": s.agent.Address(),
		"wallet_key": s.keyPlace, "secrets": s.secrets.Place(), "play_money": s.config.PlayMoney, "frozen": frozen, "pending": len(open),
		"per_call_usd": agent.USD(limits.PerCall), "per_day_usd": agent.USD(limits.PerDay),
		"today_left_usd": agent.USD(left.PerDay), "polls_left_usd": agent.USD(left.Polls),
		"server_status": s.health(ctx),
	}
	if !account {
		value["next"] = s.runnable("parley init")
	}
	if s.config.Username != "" {
		value["username"] = agent.PlainWord(s.config.Username)
	}
	if balance, err := s.balance(ctx); err == nil {
		value["balance_usd"] = agent.USD(balance)
	}
	if deposited, err := s.agent.Deposited(); err == nil {
		value["deposited_usd"] = agent.USD(deposited)
	}
	return s.print(ctx, value, func(w io.Writer) {
		table := console.Table(w)
		for _, name := range []string{
			"username", "account", "server", "server_status", "network", "play_money", "address", "balance_usd", "deposited_usd", "wallet_key",
			"secrets", "per_call_usd", "per_day_usd", "today_left_usd", "polls_left_usd", "pending", "frozen", "next",
		} {
			if shown, known := value[name]; known {
				fmt.Fprintf(table, "%s\t%v\n", name, shown)
			}
		}
		_ = table.Flush() // into memory
	})
}

// healthPatience limits how long the status waits for the server.
const healthPatience = 5 * time.Second

// health returns what the server says about itself.
func (s *session) health(ctx context.Context) string {
	if s.agent.Server() == "" {
		return "none agreed"
	}
	result, err := s.agent.Call(ctx, "getHealth", nil, agent.CallOptions{Patience: healthPatience})
	if err == nil {
		err = s.agent.Seen(ctx, result) // the next status asks again
	}
	if err != nil {
		return "does not respond"
	}
	var health client.Health
	if json.Unmarshal(result.Body, &health) != nil || !health.Status.Valid() {
		return "unknown"
	}
	return string(health.Status)
}
