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
func lockFile(ctx context.Context, path string) (*fileLock, error) {
	for {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			return &fileLock{file, path}, nil // Windows keeps others from removing an open file
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return nil, fmt.Errorf("%w; if no other process uses the channel, delete %s", err, path)
		}
	}
}

func (l *fileLock) unlock() { _, _ = l.file.Close(), os.Remove(l.path) }

// syncFolder does nothing: these systems cannot sync a folder.
func syncFolder(string) error { return nil }
