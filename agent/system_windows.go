package agent

import (
	"context"
	"os/exec"
)

// Shell returns a command of the user's own configuration.
func Shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "cmd", "/C", command)
}

// syncFolder does nothing: Windows cannot sync a folder.
func syncFolder(string) error { return nil }
