//go:build !noserver

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"syscall"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestInterrupted: Ctrl-C ends a command that waits, with a code of its own.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer hanging.Close()
	cmd := newUser(t, hanging.URL).command("init", "--username", "alice", "--yes")
	testkit.NoError(t, cmd.Start())
	<-asked
	_ = cmd.Process.Signal(syscall.SIGINT)
	if exited, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exited.ExitCode() != agent.ExitInterrupted {
		t.Errorf("after Ctrl-C: %v", exited)
	}
}
