//go:build noserver

package main

import (
	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/cmd/parley/agent"
)

// serverCommands are left out of this build.
type serverCommands struct{}

// serverSettings are the settings of a server, which this build does not have.
type serverSettings struct{}

func (*serverSettings) Options() []kong.Option { return nil }

func (*serverSettings) Check(*kong.Context) error { return nil }

var groups = agent.Groups

var helps = []map[string]string{agent.Help}
