//go:build noserver

package main

// serverCommands are left out of this build.
type serverCommands struct{}
