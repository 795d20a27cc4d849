//go:build attack

package attack

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// The programs of `make upgrade`.
const (
	newProgram   = "../../bin/parley"
	olderProgram = "../../bin/parley-older" // of the last release
)

// phaseTime is how long the load runs between two steps.
const phaseTime = 3 * time.Second

// upgradeWorld is two servers behind HAProxy.
type upgradeWorld struct {
	*world
	b        *balancer
	one, two *server
}

// newUpgradeWorld starts two servers of a program on an empty database that the program has migrated.
func newUpgradeWorld(t *testing.T, program string) *upgradeWorld {
	t.Helper()
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Fatal("HAProxy is not installed; make upgrade installs it")
	}
	w := &upgradeWorld{world: newWorld(t), b: newBalancer(t)}
	w.Exec("DROP SCHEMA public CASCADE")
	w.Exec("CREATE SCHEMA public")
	w.migrate(program)
	flags := append(w.channelFlags(), "--base-url", w.b.url, "--trusted-proxies", "127.0.0.1", "--limit-address-rate", "100000")
	for _, s := range []**server{&w.one, &w.two} {
		*s = w.newServer(flags...)
		(*s).program = program
		(*s).start("")
	}
	w.b.start(w.one, w.two)
	return w
}

// name is the name of a server in docs/haproxy.cfg.
func (w *upgradeWorld) name(s *server) string {
	if s == w.one {
		return "one"
	}
	return "two"
}

// migrate runs the migrations of a program.
func (w *upgradeWorld) migrate(program string) {
	w.T.Helper()
	cmd := exec.Command(program, "migrate", "--database-url", w.DatabaseURL)
	cmd.Env = withoutSettings(os.Environ())
	if output, err := cmd.CombinedOutput(); err != nil {
		w.T.Fatalf("%s migrate: %v\n%s", filepath.Base(program), err, output)
	}
}

// replace ends a server with SIGTERM, starts a program in its place, and waits until HAProxy sends calls to it.
func (w *upgradeWorld) replace(s *server, program string) {
	w.T.Helper()
	s.life.Signal(syscall.SIGTERM)
	s.awaitEnd(time.Minute)
	if s.life.Err != nil {
		w.T.Errorf("server %s ended with %v", w.name(s), s.life.Err)
	}
	s.program = program
	s.start("")
	w.b.await(w.name(s), "UP")
	time.Sleep(phaseTime)
}

// TestUpgrade: the last release is replaced by this program under load, and comes back. No call fails.
func TestUpgrade(t *testing.T) {
	w := newUpgradeWorld(t, olderProgram)
	older := w.Count("SELECT max(version_id) FROM goose_db_version")
	l := newLoad(w.world, w.b.url)
	l.start()
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"the older program on its schema", func() { time.Sleep(phaseTime) }},
		{"migrate", func() { w.migrate(newProgram); time.Sleep(phaseTime) }},
		{"the new program replaces server one", func() { w.replace(w.one, newProgram) }},
		{"the new program replaces server two", func() { w.replace(w.two, newProgram) }},
		{"the older program replaces server one", func() { w.replace(w.one, olderProgram) }},
		{"the older program replaces server two", func() { w.replace(w.two, olderProgram) }},
	} {
		if cost := l.phase(w.b, step.name, step.run); cost.calls == 0 || cost.retries != 0 || cost.broken != 0 || cost.troubles != 0 {
			t.Errorf("%s was not smooth", step.name)
		}
	}
	l.end()
	if newer := w.Count("SELECT max(version_id) FROM goose_db_version"); newer <= older {
		t.Errorf("the schema was version %d and is %d: the older program is no older one", older, newer)
	}
	l.check(w.pass)
}

// TestRollingRestart: two servers of this program are restarted twice each under load. No call fails, nothing is sent again, neither
// by clients nor by HAProxy, and no connection breaks.
func TestRollingRestart(t *testing.T) {
	w := newUpgradeWorld(t, newProgram)
	l := newLoad(w.world, w.b.url)
	l.start()
	time.Sleep(phaseTime)
	for range 2 {
		for _, s := range []*server{w.one, w.two} {
			cost := l.phase(w.b, "restart of server "+w.name(s), func() { w.replace(s, newProgram) })
			if cost.retries != 0 || cost.broken != 0 || cost.troubles != 0 {
				t.Errorf("the restart of server %s was not smooth", w.name(s))
			}
		}
	}
	l.end()
	l.check(w.pass)
	w.checkWithoutServers()
}

// checkWithoutServers checks what callers get from HAProxy if no server is left: to send the same payment again.
func (w *upgradeWorld) checkWithoutServers() {
	w.T.Helper()
	for _, s := range []*server{w.one, w.two} {
		s.kill()
		w.b.await(w.name(s), "DOWN")
	}
	r, err := testkit.Request(w.T.Context(), w.http, http.MethodPost, w.b.url+"/chat/group/send", "{}")
	testkit.NoError(w.T, err)
	r.Want(w.T, "a call without a server", http.StatusServiceUnavailable, "payment_unknown")
	if id := r.Header.Get("X-Request-Id"); r.Header.Get("Retry-After") == "" || id == "" || r.Text("request_id") != id {
		w.T.Errorf("a call without a server: %v %v, want Retry-After and a request id", r, r.Header)
	}
}
