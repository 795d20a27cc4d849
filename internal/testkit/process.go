package testkit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Process is a running parley command.
type Process struct {
	Cmd   *exec.Cmd
	URL   string        // what the command prints behind "ready"
	Ready chan struct{} // closed when URL is set
	Ended chan struct{} // closed when the process has ended
	Err   error         // how it has ended
}

// Launch starts a command. On Linux the kernel kills it when the test binary ends, also if that is killed.
func Launch(cmd *exec.Cmd) (*Process, error) {
	p := &Process{Cmd: cmd, Ready: make(chan struct{}), Ended: make(chan struct{})}
	cmd.Stdout = &readiness{p: p, to: cmd.Stdout}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	endWithParent(cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread, not the process: this thread must last as long as the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			close(p.Ended)
		}
	}()
	return p, <-started
}

// Serves waits until the command is ready, and reports whether it is: it may end, or take longer than the patience.
func (p *Process) Serves(patience time.Duration) bool {
	select {
	case <-p.Ready:
		return true
	case <-p.Ended:
	case <-time.After(patience):
	}
	return false
}

// HasEnded reports whether the process has ended, or does within the patience.
func (p *Process) HasEnded(patience time.Duration) bool {
	select {
	case <-p.Ended:
		return true
	default:
	}
	select {
	case <-p.Ended:
		return true
	case <-time.After(patience):
		return false
	}
}

// Kill ends the process as a machine that loses power would, and returns when it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // fails if it has ended
	<-p.Ended
}

// Signal sends a signal; a process that has ended does not get it.
func (p *Process) Signal(signal syscall.Signal) { _ = p.Cmd.Process.Signal(signal) }

// readiness waits for a line "ready URL". Only one goroutine writes to it.
type readiness struct {
	p    *Process
	to   io.Writer // may be nil
	line []byte
}

func (r *readiness) Write(p []byte) (int, error) {
	for rest := p; r.p.URL == "" && len(rest) > 0; {
		part, after, whole := bytes.Cut(rest, []byte("\n"))
		r.line, rest = append(r.line, part...), after
		if !whole {
			break
		}
		if url, ready := bytes.CutPrefix(r.line, []byte("ready ")); ready {
			r.p.URL = string(url)
			close(r.p.Ready)
		}
		r.line = nil
	}
	if r.to == nil {
		return len(p), nil
	}
	return r.to.Write(p)
}

// nextPort counts through the ports below those that connections going out get, so that the address of a server that is
// down stays free until it starts again.
var nextPort atomic.Int32

func init() { nextPort.Store(15000 + rand.Int32N(12000)) }

// FreeAddress returns an address on which nobody listens. Until the test ends, its UDP port keeps other tests away from it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	var problem error
	for range 200 {
		address := fmt.Sprintf("127.0.0.1:%d", nextPort.Add(1))
		guard, err := net.ListenPacket("udp", address)
		if err == nil {
			t.Cleanup(func() { _ = guard.Close() })
			var listener net.Listener
			if listener, err = net.Listen("tcp", address); err == nil {
				_ = listener.Close()
				return address
			}
		}
		problem = errors.Join(problem, err)
	}
	t.Fatal(problem)
	return ""
}
