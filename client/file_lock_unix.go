//go:build unix

package client

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// lockPause is the pause between two attempts to lock a file that another process has locked.
const lockPause = 10 * time.Millisecond

// lockFile locks a file for this process. It waits until ctx ends. The system releases the lock if the process dies. The
// file stays, because a process could be waiting for it.
func lockFile(ctx context.Context, path string) (*fileLock, error) {
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the caller's own folder
		if err != nil {
			return nil, err
		}
		lock := &fileLock{file, path}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && lock.held() {
			return lock, nil
		}
		_ = file.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, err
		}
		if err := sleep(ctx, lockPause); err != nil {
			return nil, err
		}
	}
}

func (l *fileLock) unlock() { _ = l.file.Close() } // closing releases the lock

// syncFolder makes a renamed file survive a power failure.
func syncFolder(folder string) error {
	file, err := os.Open(folder) //nolint:gosec // the caller's own folder
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
