//go:build !unix

package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// lockFile creates the file, and waits until ctx ends while it exists. If a process dies with a lock, its file stays:
// the error names it.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	for {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			_ = file.Close()
			return func() { _ = os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%w; if no other process uses the channel, delete %s", err, path)
		}
	}
}

// syncFolder does nothing: these systems cannot sync a folder.
func syncFolder(string) error { return nil }
