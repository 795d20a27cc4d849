package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// lockPause is the pause between two attempts to lock a file that another process has locked.
const lockPause = 5 * time.Millisecond

// lines is an append-only file with a JSON object in each line, which several processes read and write. A line that was appended
// survives a crash. A crash or a full disk leaves no part of a line.
type lines struct {
	path string
	read int64 // how much of the file this process has read
	end  int64 // the size of the file when it was read; what is after read is a part of a line
}

// locked runs a function while no other process reads or writes the file.
func (l *lines) locked(ctx context.Context, run func(*os.File) error) error {
	for {
		lock, err := lockFile(ctx, lockOf(l.path))
		if err != nil {
			return err
		}
		file, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o600)
		if err == nil && !isAt(lock.Stat, lockOf(l.path)) {
			_, _ = file.Close(), lock.Close()
			continue // the file was replaced between
		}
		if err == nil {
			err = errors.Join(run(file), file.Close())
		}
		_ = lock.Close() // the system releases the lock
		return err
	}
}

// lockFile locks a file, which it creates if it does not exist. The caller closes it.
func lockFile(ctx context.Context, path string) (*flock.Flock, error) {
	for {
		lock := flock.New(path, flock.SetPermissions(0o600))
		if _, err := lock.TryLockContext(ctx, lockPause); err != nil {
			return nil, fmt.Errorf("lock %s: %w", filepath.Base(path), err)
		}
		if isAt(lock.Stat, path) {
			return lock, nil
		}
		_ = lock.Close() // another process removed the file meanwhile: its lock excludes nobody
	}
}

// isAt reports whether an open file is the one at a path.
func isAt(open func() (fs.FileInfo, error), path string) bool {
	opened, err := open()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}

// lockSuffix ends the names of files that stand for a lock only.
const lockSuffix = ".lock"

// locked runs a function while no other process has locked the path. The lock is a file of its own, because files are replaced.
func locked(ctx context.Context, path string, run func() error) error {
	lock, err := lockFile(ctx, path+lockSuffix)
	if err != nil {
		return err
	}
	defer unlock(lock)
	return run()
}

// lockedNow is locked, but does nothing if another process has locked the path.
func lockedNow(path string, run func() error) error {
	lock := flock.New(path+lockSuffix, flock.SetPermissions(0o600))
	if free, err := lock.TryLock(); err != nil || !free {
		return err
	}
	if !isAt(lock.Stat, lock.Path()) {
		return lock.Close() // another process has removed it just now
	}
	defer unlock(lock)
	return run()
}

// unlock removes the file of a lock while it is locked, where the system allows that. A process that waits for it finds out, and
// locks another.
func unlock(lock *flock.Flock) {
	if isAt(lock.Stat, lock.Path()) {
		_ = os.Remove(lock.Path())
	}
	_ = lock.Close() // the system releases the lock
}

// next passes each line that this process has not read to a function. The caller has locked the file.
func (l *lines) next(file *os.File, each func(line []byte) error) error {
	if _, err := file.Seek(l.read, io.SeekStart); err != nil {
		return err
	}
	rest, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	l.end = l.read + int64(len(rest))
	for {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		if !whole {
			return nil // the part of a line that a crash left, or nothing
		}
		if err := each(line); err != nil {
			return fmt.Errorf("%s at byte %d: %w", filepath.Base(l.path), l.read, err)
		}
		l.read += int64(len(line)) + 1
		rest = after
	}
}

// tailBytes is how much of the end of a file is read first to find the lines since a time.
const tailBytes = 256 << 10

// skip sets where reading begins: at a line before which every line is old, or at the first. The caller has locked the file.
func (l *lines) skip(file *os.File, old func(line []byte) bool) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	for length := int64(tailBytes); length < size; length *= 4 {
		start := make([]byte, length)
		n, err := file.ReadAt(start, size-length)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		part, rest, found := bytes.Cut(start[:n], []byte{'\n'})
		line, _, whole := bytes.Cut(rest, []byte{'\n'})
		if found && whole && old(line) {
			l.read = size - length + int64(len(part)) + 1
			return nil
		}
	}
	l.read = 0
	return nil
}

// add appends a line after those that this process has read, which must be all. It removes what a crash left of another one.
func (l *lines) add(file *os.File, line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if err := l.unchanged(file); err != nil {
		return err
	}
	if err := file.Truncate(l.read); err != nil {
		return err
	}
	if _, err = file.WriteAt(append(text, '\n'), l.read); err == nil {
		err = file.Sync()
	}
	if err != nil {
		return errors.Join(err, file.Truncate(l.read)) // the disk may be full
	}
	l.read += int64(len(text)) + 1
	l.end = l.read
	return nil
}

// unchanged returns an error if somebody replaced the file or wrote to it although it is locked. What they wrote stays.
func (l *lines) unchanged(file *os.File) error {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > l.end || !isAt(file.Stat, l.path) {
		return fmt.Errorf("%s was changed by a program that did not lock it; nothing was written. Run the command again", filepath.Base(l.path))
	}
	return nil
}

// unfinished is the pattern of files that are being written. Afterwards they are renamed.
const unfinished = ".new-*"

// removeUnfinished removes files that a crash left behind an hour ago or earlier.
func removeUnfinished(folders ...string) {
	for _, folder := range folders {
		found, _ := filepath.Glob(filepath.Join(folder, unfinished)) // the pattern is valid
		for _, path := range found {
			if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Hour {
				_ = os.Remove(path) // it does no harm but for its size
			}
		}
	}
}

// writeFile replaces a file atomically and durably.
func writeFile(path string, content []byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), unfinished) // readable by its owner only
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}
