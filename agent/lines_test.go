//go:build unix

package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
)

// TestRemovedLock: a lock file that somebody tidies up while a process has the lock lets no other process write, and a ledger that was
// replaced meanwhile is not written.
func TestRemovedLock(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	one, two := openLedger(t, folder), openLedger(t, folder)
	reserved := entry{Step: stepReserved, ID: client.NewIdentifier(), Price: 30_000, Amount: 30_000}
	if err := one.locked(t.Context(), func(add func(entry) error) error {
		found, err := filepath.Glob(filepath.Join(folder, "*.lock"))
		for _, path := range found {
			err = errors.Join(err, os.Remove(path))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := two.Left(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another process has the lock too: %v", err)
		}
		return errors.Join(err, add(reserved))
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "ledger.jsonl")
	for i, change := range []func(content []byte) error{
		func(content []byte) error { return writeFile(path, append(content, content...)) },
		func(content []byte) error { return os.WriteFile(path, append(content, content...), 0o600) },
	} {
		if err := one.locked(t.Context(), func(add func(entry) error) error {
			content, err := os.ReadFile(path)
			if err := errors.Join(err, change(content)); err != nil {
				t.Fatal(err)
			}
			return add(reserved)
		}); err == nil {
			t.Errorf("change %d: a ledger that another program changed was written", i)
		}
		if left, err := openLedger(t, folder).Left(t.Context()); left != 1_000_000-30_000<<(i+1) || err != nil {
			t.Errorf("change %d: the day has %d left, %v", i, left, err)
		}
	}
}

// TestLockFilesGo: the file of a lock does not stay, and those who wait for it take turns.
func TestLockFilesGo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "call")
	var inside, most atomic.Int64
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 10 {
				if err := locked(t.Context(), path, func() error {
					most.Store(max(most.Load(), inside.Add(1)))
					time.Sleep(100 * time.Microsecond)
					inside.Add(-1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if most.Load() != 1 {
		t.Errorf("%d had the lock at the same time", most.Load())
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("%v stay, %v", left, err)
	}
}
