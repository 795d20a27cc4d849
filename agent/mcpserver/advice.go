package mcpserver

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/agent"
)

// human returns a command for the human, who has another shell than this program.
func (s *parleyServer) human(command string) string {
	switch {
	case s.Home == "":
		return command
	case !agent.Tame(s.Home) || strings.Contains(s.Home, " "):
		return command + " --home " + strconv.Quote(s.Home)
	}
	return command + " --home " + s.Home
}

// registering says how the wallet gets an account. Without a service, only the human can choose one.
func (s *parleyServer) registering() string {
	human := "ask your human to run: " + s.human("parley init")
	if s.agent.Server() == "" || !s.tools["parley_create"] {
		return human
	}
	return "call parley_create with kind account and a username (1.00 USD, once), or " + human
}

var toolNames = regexp.MustCompile(`(call )?parley_[a-z]+`)

// orAskHuman returns a mention of a tool, or the human's command if this server does not have the tool.
func (s *parleyServer) orAskHuman(mention string) string {
	tool := strings.TrimPrefix(mention, "call ")
	i := slices.IndexFunc(agent.Callers, func(caller agent.Caller) bool { return caller.Tool == tool })
	if s.tools[tool] || i < 0 {
		return mention
	}
	return "ask your human to run: " + s.human("parley "+agent.Callers[i].Command)
}

// callerOf returns the tool that makes an operation, or the human's command if this server does not have the tool.
func (s *parleyServer) callerOf(operation string) string {
	caller := agent.CallerOf(operation)
	if s.tools[caller.Tool] {
		return caller.Tool
	}
	return "the human's command parley " + caller.Command
}

// inTools returns a message of the service with tools in place of calls of the contract.
func (s *parleyServer) inTools(message string) string {
	return s.agent.InCallers(strings.ReplaceAll(message, "successor_agent_id", "successor"), s.callerOf)
}
