//go:build unix

package embedded

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command prepares a program of PostgreSQL. It runs as the user (nil: the user of this process), in a folder that every
// user can enter.
func command(ctx context.Context, user *syscall.Credential, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = "/"
	cmd.WaitDelay = 5 * time.Second // initdb's child processes may keep its output open after it was killed
	// The environment must not affect PostgreSQL: PGPORT, PGDATA and others change what it does, and a locale may not
	// be installed.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	return cmd
}

// child is a running process that ends with this one, if the operating system supports it.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of cmd.Wait, once ended is closed
}

// launch starts a program that inherits the lock, in its own process group: Ctrl-C in the terminal does not reach it, so this process
// decides when it stops.
func (s *Server) launch(ctx context.Context, output io.Writer, program string, arguments ...string) (*child, error) {
	cmd := command(ctx, s.user, program, arguments...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = output, output, []*os.File{s.lock}
	cmd.SysProcAttr.Setpgid = true
	endWithParent(cmd.SysProcAttr)
	c := &child{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// On Linux the parent of a child is the thread, not the process. If the thread ended before the child, the
		// child would receive its death signal. So the thread is locked to this goroutine until the child ends. It is
		// never unlocked, and ends with the goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.ended)
		}
	}()
	return c, <-started
}

// shutDown asks PostgreSQL to stop, with stronger signals after each timeout, and returns when it has ended.
func (c *child) shutDown() error {
	for _, step := range []struct {
		signal   os.Signal
		patience time.Duration
	}{
		{syscall.SIGINT, 20 * time.Second},  // fast: disconnects the clients and writes everything to the data files
		{syscall.SIGQUIT, 10 * time.Second}, // immediate: leaves the work to the recovery at the next start
		{syscall.SIGKILL, 5 * time.Second},
	} {
		_ = c.cmd.Process.Signal(step.signal) // fails if it has ended
		select {
		case <-c.ended:
			return nil
		case <-time.After(step.patience):
		}
	}
	return errors.New("PostgreSQL does not end")
}
