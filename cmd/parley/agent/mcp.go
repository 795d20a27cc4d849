package agent

import (
	"context"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent/mcpserver"
)

// mcpCommand serves the agent's account to a model. Standard output belongs to the protocol.
type mcpCommand struct {
	Flags   agentFlags `embed:""`
	Tools   string     `default:"core" enum:"read,core,all" help:"Set of tools: read (sends nothing), core (all but management), or all."`
	Raw     bool       `help:"Add parley_call, which makes any call of the contract."`
	Anyone  bool       `help:"Let tools write to agents and conversations that are not contacts."`
	Channel bool       `help:"Push messages into sessions of clients that support claude/channel. Costs up to the day's limit for polls."`
}

// Run serves one session on standard input and output.
func (c *mcpCommand) Run(ctx context.Context, s *session) error {
	options := mcpserver.Options{
		Tools: c.Tools, Raw: c.Raw, Channel: c.Channel, Balance: s.balance, Log: slog.New(slog.NewTextHandler(s.Err, nil)),
		Anyone: c.Anyone,
	}
	if standard, err := agentHome(""); err != nil || standard != s.home {
		options.Home = s.home
	}
	return mcpserver.Serve(ctx, s.agent, &mcp.StdioTransport{}, options)
}
