//go:build attack

package attack

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/x402"
)

// program is the binary under attack: ATTACK_PROGRAM, or the one that `make attacked` builds.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(cmp.Or(os.Getenv("ATTACK_PROGRAM"), "../bin/parley-attacked"))
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
})

// server is one `parley serve`, at the same address through all of its lives.
type server struct {
	w      *world
	listen string
	url    string
	flags  []string // behind the usual ones; a flag given again counts
	output *output  // of all its lives
	life   *life    // the running or the last process
}

// life is one process of a server.
type life struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed when it serves
	ended chan struct{} // closed when it is gone
}

// serve starts a server on the world's database and waits until it serves. flags come behind the usual ones.
func (w *world) serve(flags ...string) *server {
	w.t.Helper()
	s := w.newServer(flags...)
	s.start("")
	return s
}

// newServer is a server that does not run yet.
func (w *world) newServer(flags ...string) *server {
	w.t.Helper()
	s := &server{w: w, listen: freeAddress(w.t), flags: flags, output: &output{}}
	s.url = "http://" + s.listen
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = append(w.servers, s)
	return s
}

// start starts the process, which will kill itself at the crash point ("" for none, "begun", "begun:3"), and waits until
// it serves or, with a crash point, has died: the recovery worker may reach one before anybody sends a request.
func (s *server) start(crash string) {
	s.w.t.Helper()
	if err := s.launch(crash); err != nil {
		s.w.t.Fatal(err)
	}
	select {
	case <-s.life.ready:
		return
	case <-s.life.ended:
		if crash != "" {
			return
		}
	case <-time.After(30 * time.Second):
	}
	s.w.t.Fatalf("the server does not come up:\n%s", s.output)
}

func (s *server) launch(crash string) error {
	path, err := program()
	if err != nil {
		return fmt.Errorf("%w (make attack builds it)", err)
	}
	args := append([]string{
		"serve", "--database-url", s.w.databaseURL, "--payee", devnet.Payee, "--facilitator-url", s.w.proxy.url,
		"--rpc-url", s.w.proxy.url + "/rpc", "--network", x402.NetworkBaseSepolia, "--listen", s.listen, "--base-url", s.url,
	}, s.flags...)
	life := &life{cmd: exec.Command(path, args...), ready: make(chan struct{}), ended: make(chan struct{})}
	// Nothing of the caller's settings reaches the server.
	life.cmd.Env = append(withoutSettings(os.Environ()), "PARLEY_CRASH="+crash)
	life.cmd.Stdout = &readiness{output: s.output, ready: life.ready}
	life.cmd.Stderr = s.output
	life.cmd.SysProcAttr = &syscall.SysProcAttr{}
	endWithParent(life.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread, not the process: this one must last as long as the child.
		runtime.LockOSThread()
		err := life.cmd.Start()
		started <- err
		if err == nil {
			_ = life.cmd.Wait() // how it ended is the tests' to know
			close(life.ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.life = life
	return nil
}

// restart ends the process as kill -9 does, if it still lives, and starts another one.
func (s *server) restart(crash string) {
	s.w.t.Helper()
	s.kill()
	s.start(crash)
}

// kill ends the process as a machine that loses power would, and returns when it is gone.
func (s *server) kill() {
	if s.life == nil {
		return
	}
	_ = s.life.cmd.Process.Kill() // fails if it has ended
	<-s.life.ended
}

// stop asks the process to end and returns when it has.
func (s *server) stop() {
	s.w.t.Helper()
	_ = s.life.cmd.Process.Signal(syscall.SIGTERM)
	s.awaitEnd(30 * time.Second)
}

// awaitEnd waits until the process has ended by itself.
func (s *server) awaitEnd(patience time.Duration) {
	s.w.t.Helper()
	select {
	case <-s.life.ended:
	case <-time.After(patience):
		s.w.t.Fatalf("the server still lives after %s:\n%s", patience, s.output)
	}
}

// died tells whether the process was ended by SIGKILL.
func (s *server) died() bool {
	select {
	case <-s.life.ended:
		status, ok := s.life.cmd.ProcessState.Sys().(syscall.WaitStatus)
		return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
	default:
		return false
	}
}

func withoutSettings(environment []string) []string {
	var kept []string
	for _, variable := range environment {
		if !strings.HasPrefix(variable, "PARLEY_") && !strings.HasPrefix(variable, "PG") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// output collects what processes print.
type output struct {
	mu     sync.Mutex
	buffer bytes.Buffer
	watch  func(p []byte) // if set, it sees everything, and only the newest part is kept here
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watch != nil {
		o.watch(p)
		if o.buffer.Len() > 1<<20 {
			o.buffer.Next(o.buffer.Len() / 2)
		}
	}
	return o.buffer.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// readiness waits for the line "ready URL". Only one goroutine writes to it.
type readiness struct {
	*output
	seen  []byte
	ready chan struct{}
	once  sync.Once
}

func (r *readiness) Write(p []byte) (int, error) {
	r.seen = append(r.seen, p...)
	if line, _, ended := bytes.Cut(r.seen, []byte("\n")); ended && bytes.HasPrefix(line, []byte("ready ")) {
		r.once.Do(func() { close(r.ready) })
	}
	return r.output.Write(p)
}

// nextPort counts through the ports below those that connections going out get, so that the address of a server that is
// down stays free for its next life.
var nextPort atomic.Int32

func init() { nextPort.Store(15000 + rand.Int32N(12000)) }

func freeAddress(t testing.TB) string {
	t.Helper()
	var problem error
	for range 200 {
		address := fmt.Sprintf("127.0.0.1:%d", nextPort.Add(1))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			_ = listener.Close()
			return address
		}
		problem = errors.Join(problem, err)
	}
	t.Fatal(problem)
	return ""
}
