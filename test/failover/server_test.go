//go:build failover

package failover

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// The routes to the database. The first server takes the first.
const (
	routeProxy = "HAProxy"
	routeHosts = "several hosts"
)

var routes = []string{routeProxy, routeHosts}

// program is the server, built with the tag crashpoints, so that its clock can be shifted.
const program = "../../bin/parley-attacked"

// server is one `parley serve`, at the same address through all of its lives.
type server struct {
	t           testing.TB
	route       string
	databaseURL string
	listen      string
	facilitator string
	keys        []string // settings that name the files with keys
	logs        string   // folder

	mu      sync.Mutex
	process *testkit.Process
	stopped []window // when it could not respond: stopped by a signal
}

// window is a span of time.
type window struct{ from, to time.Time }

func (w window) overlaps(other window) bool {
	return w.from.Before(other.to) && other.from.Before(w.to)
}

func newServer(t testing.TB, index int, c *cluster, facilitator string, keys []string) *server {
	t.Helper()
	return &server{t: t, route: routes[index], databaseURL: c.url(routes[index]), listen: fmt.Sprintf("127.0.0.1:%d", 4000+index),
		facilitator: facilitator, keys: keys, logs: c.root}
}

// start starts the process with a clock that is off.
func (s *server) start(shift time.Duration) error {
	log, err := os.OpenFile(filepath.Join(s.logs, "parley-"+s.listen+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o644) //nolint:gosec // logs of a test
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(program, append([]string{"serve", "--database-url", s.databaseURL, "--payee", devnet.Payee, "--network",
		x402.NetworkBaseSepolia,
		"--facilitator-url", s.facilitator, "--rpc-url", s.facilitator + "/rpc", "--listen", s.listen, "--base-url", "http://" + s.listen},
		s.keys...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PARLEY_CLOCK_SHIFT=" + shift.String(), "PARLEY_LIMIT_ADDRESS_RATE=100000000"}
	cmd.Stdout, cmd.Stderr = log, log
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, err = testkit.Launch(cmd)
	return err
}

// signal sends a signal to the process.
func (s *server) signal(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.Signal(signal)
}

// kill ends the process at once.
func (s *server) kill() {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	process.Kill()
}

// pause stops the process for a time. Nobody can expect a response from it meanwhile.
func (s *server) pause(d time.Duration) {
	from := time.Now()
	s.signal(syscall.SIGSTOP)
	time.Sleep(d)
	s.signal(syscall.SIGCONT)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = append(s.stopped, window{from, time.Now()})
}

// couldRespond reports whether the process was never stopped in a window.
func (s *server) couldRespond(during window) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stopped {
		if stop.overlaps(during) {
			return false
		}
	}
	return true
}
