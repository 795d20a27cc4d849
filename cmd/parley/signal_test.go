package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestTwoSignalsAtOnce: a process that gets one signal twice, as from the command timeout, ends in order. Without that, the second
// signal would end this test.
func TestTwoSignalsAtOnce(t *testing.T) {
	ctx, stop := interruptible(t.Context())
	defer stop()
	self, err := os.FindProcess(os.Getpid())
	testkit.NoError(t, err)
	for range 2 {
		testkit.NoError(t, self.Signal(syscall.SIGTERM))
		if !testkit.Eventually(10*time.Second, func() bool { return ctx.Err() != nil }) {
			t.Fatal("a signal did not end the context")
		}
		time.Sleep(50 * time.Millisecond) // the second one comes after the first one was handled
	}
}
