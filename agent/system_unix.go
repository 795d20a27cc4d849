//go:build unix

package agent

import (
	"context"
	"os/exec"
)

// Shell returns a command of the user's own configuration.
func Shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", command)
}
