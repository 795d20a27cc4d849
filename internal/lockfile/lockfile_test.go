//go:build unix

package lockfile_test

import (
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/lockfile"
)

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
				lock, err := lockfile.Wait(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				runtime.Gosched()
				inside.Add(-1)
				lock.Release()
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
