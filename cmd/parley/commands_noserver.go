//go:build noserver

package main

import "github.com/alecthomas/kong"

// serverCommands are left out of this build.
type serverCommands struct{}

// settings are those of a server, which this build has not.
type settings struct{}

func (*settings) options() []kong.Option { return nil }

func (*settings) check(*kong.Context) error { return nil }
