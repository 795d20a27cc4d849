//go:build unix

package embedded

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command prepares a program of PostgreSQL's to run as the account (nil: this process's user) in a folder it can enter.
func command(ctx context.Context, user *account, folder, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = folder
	cmd.WaitDelay = 5 * time.Second // initdb's own children may hold its output open after it was killed
	// The environment must not choose: PGPORT, PGDATA and others change what PostgreSQL does, a locale may not be installed.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if user != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: user.uid, Gid: user.gid}
	}
	return cmd
}

// child is a running process that does not outlive this one, where the system can see to that.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // of cmd.Wait, once ended is closed
}

// launch starts the command out of reach of the terminal's Ctrl-C, so that this process decides when it stops.
func launch(cmd *exec.Cmd) (*child, error) {
	cmd.SysProcAttr.Setpgid = true
	endWithParent(cmd.SysProcAttr)
	c := &child{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread, not the process: were the thread to end before the child, the child would be told that
		// its parent died. So the thread serves nothing else until then, and is not unlocked but ends with this goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// shutDown asks PostgreSQL to stop, less and less politely, and returns when it has.
func shutDown(ctx context.Context, process *os.Process, ended <-chan struct{}) error {
	for _, step := range []struct {
		signal   os.Signal
		patience time.Duration
	}{
		{syscall.SIGINT, 20 * time.Second},  // fast: disconnects the clients and writes everything to the data files
		{syscall.SIGQUIT, 10 * time.Second}, // immediate: leaves the work to the recovery at the next start
		{syscall.SIGKILL, 5 * time.Second},
	} {
		_ = process.Signal(step.signal) // fails if it has ended, which the next lines notice
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(step.patience):
		}
	}
	return fmt.Errorf("PostgreSQL, process %d, does not end", process.Pid)
}

// ended is closed when the PostgreSQL of the data folder, not a child of this process, is gone.
func ended(ctx context.Context, pid int, data string) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		for serves(pid, data) {
			if ctx.Err() != nil { // nobody waits any more
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		close(gone)
	}()
	return gone
}
