package agent

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/mcpserver"
)

// mcpCommand serves the agent's account to a model. Standard output belongs to the protocol.
type mcpCommand struct {
	Flags agentFlags `embed:""`
	Tools string     `default:"core" placeholder:"read|core|all" enum:"read,core,all"`
}

// Run serves one session on standard input and output. It begins without a wallet too.
func (c *mcpCommand) Run(ctx context.Context, s *session) error {
	return mcpserver.Serve(ctx, mcpserver.Stdio(), mcpserver.Options{
		Tools: c.Tools, Line: s.line,
		Open: func() (*agent.Agent, error) {
			err := s.open(ctx)
			if s.warning != "" {
				fmt.Fprintln(s.rawErr, agent.Visible(s.warning))
			}
			return s.agent, err
		},
	})
}
