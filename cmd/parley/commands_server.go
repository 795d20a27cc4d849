//go:build !noserver

package main

import (
	"slices"

	"github.com/alecthomas/kong"
	_ "golang.org/x/crypto/x509roots/fallback" // for images, which have no root certificates

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/development"
	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/cmd/parley/settings"
)

// serverCommands are the commands of operators and developers of servers.
type serverCommands struct {
	Operator    operator.Commands    `embed:""`
	Development development.Commands `embed:""`
}

// serverSettings finds the settings of a server.
type serverSettings = settings.Settings

// groups are the groups of commands and settings in the help.
var groups = slices.Concat(agent.Groups, []kong.Group{{Key: operator.Group, Title: "Commands for operators:"},
	{Key: development.Group, Title: "Commands for developers:"}}, operator.Groups)

var helps = []map[string]string{agent.Help, operator.Help}
