//go:build unix

package agent

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// Shell returns a command of the user's own configuration.
func Shell(ctx context.Context, command string) *exec.Cmd {
	return exec.CommandContext(ctx, "/bin/sh", "-c", command)
}

// syncFolder makes a new, renamed or removed file survive a power failure.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// lockOf returns the file that is locked for a file of lines: itself, so that nobody who tidies up removes the lock.
func lockOf(path string) string { return path }
