//go:build attack

package attack

import (
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// attacked is the program under attack, which `make attacked` builds.
const attacked = "../../bin/parley-attacked"

// server is one `parley serve`, at the same address through all of its lives.
type server struct {
	w       *world
	listen  string
	url     string
	admin   string // address of the admin listener
	program string
	flags   []string         // behind the usual ones; a flag given again counts
	shift   time.Duration    // how far the clock of its machine is ahead
	output  *testkit.Buffer  // of all its lives
	life    *testkit.Process // the running or the last process
}

// serve starts a server on the world's database and waits until it serves. flags come behind the usual ones.
func (w *world) serve(flags ...string) *server {
	w.T.Helper()
	s := w.newServer(flags...)
	s.start("")
	return s
}

// newServer is a server that does not run yet.
func (w *world) newServer(flags ...string) *server {
	w.T.Helper()
	s := &server{w: w, listen: testkit.FreeAddress(w.T), admin: testkit.FreeAddress(w.T), flags: flags, program: attacked,
		output: &testkit.Buffer{}}
	s.url = "http://" + s.listen
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers = append(w.servers, s)
	return s
}

// start starts the process, which will kill itself at the crash point ("" for none, "begun", "begun:3"), and waits until
// it serves or, with a crash point, has died: the recovery worker may reach one before anybody sends a request.
func (s *server) start(crash string) {
	s.w.T.Helper()
	testkit.NoError(s.w.T, s.launch(crash))
	if s.life.Serves(30*time.Second) || crash != "" && s.life.HasEnded(0) {
		return
	}
	s.w.T.Fatalf("the server does not come up:\n%s", s.output)
}

func (s *server) launch(crash string) error {
	args := append([]string{
		"serve", "--database-url", s.w.DatabaseURL, "--payee", devnet.Payee, "--facilitator-url", s.w.proxy.url,
		"--rpc-url", s.w.proxy.url + "/rpc", "--network", x402.NetworkBaseSepolia, "--listen", s.listen, "--admin-listen", s.admin,
		"--base-url", s.url, "--server-secret", "file:" + s.w.serverSecret,
	}, s.flags...)
	cmd := exec.Command(s.program, args...)
	// Nothing of the caller's settings reaches the server.
	cmd.Env = append(withoutSettings(os.Environ()), "PARLEY_CRASH="+crash, "PARLEY_CLOCK_SHIFT="+s.shift.String())
	cmd.Stdout, cmd.Stderr = s.output, s.output
	life, err := testkit.Launch(cmd)
	if err == nil {
		s.life = life
	}
	return err
}

// restart ends the process as kill -9 does, if it still lives, and starts another one.
func (s *server) restart(crash string) {
	s.w.T.Helper()
	s.kill()
	s.start(crash)
}

// kill ends the process as a machine that loses power would, and returns when it is gone.
func (s *server) kill() {
	if s.life != nil {
		s.life.Kill()
	}
}

// awaitEnd waits until the process has ended by itself.
func (s *server) awaitEnd(patience time.Duration) {
	s.w.T.Helper()
	if !s.life.HasEnded(patience) {
		s.w.T.Fatalf("the server still lives after %s:\n%s", patience, s.output)
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
