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

// lockOf returns the file that is locked for a file of lines. Windows keeps the owner of a lock from writing through another handle.
// It also keeps everybody from removing a file that is open.
func lockOf(path string) string { return path + lockSuffix }

// CheckFolder accepts every folder: those of a user are not open to others on Windows.
func CheckFolder(string) error { return nil }
