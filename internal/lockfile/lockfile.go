// Package lockfile locks files between processes, and replaces files so that a crash leaves the old or the new content.
package lockfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// pause is the time between two attempts to lock a file that another process has locked.
const pause = 5 * time.Millisecond

// Lock is a locked file. The system releases it when the process dies.
type Lock struct{ file *flock.Flock }

// Wait locks a file, which it creates if it does not exist. It waits until ctx ends.
func Wait(ctx context.Context, path string) (*Lock, error) {
	for {
		file := flock.New(path, flock.SetPermissions(0o600))
		if _, err := file.TryLockContext(ctx, pause); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
		}
		if lock := (&Lock{file}); lock.Held() {
			return lock, nil
		}
		_ = file.Close() // its last holder removed the file: this lock excludes nobody
	}
}

// Try is Wait, but returns nil if another process has locked the file.
func Try(path string) (*Lock, error) {
	file := flock.New(path, flock.SetPermissions(0o600))
	if free, err := file.TryLock(); err != nil || !free {
		return nil, err
	}
	if lock := (&Lock{file}); lock.Held() {
		return lock, nil
	}
	return nil, file.Close()
}

// Held reports whether the file is still the one that others try to lock.
func (l *Lock) Held() bool {
	opened, err := l.file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(l.file.Path())
	return err == nil && os.SameFile(opened, found)
}

// Release removes the file, where the system allows that while it is locked, and unlocks it. Those who wait for it lock another one.
func (l *Lock) Release() {
	if l.Held() {
		_ = os.Remove(l.file.Path())
	}
	_ = l.file.Close()
}

// Replace replaces the content of a file atomically and durably. The new file is readable for its owner only. The caller holds a lock
// for the file, so the temporary name is free, or was left by a crash.
func Replace(path string, content []byte) error {
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the caller's own folder
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
