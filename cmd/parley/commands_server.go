//go:build !noserver

package main

import (
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
