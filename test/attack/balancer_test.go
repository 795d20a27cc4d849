//go:build attack

package attack

import (
	"encoding/csv"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// balancer is HAProxy before two servers, with the configuration of docs/haproxy.cfg.
type balancer struct {
	t      testing.TB
	url    string
	socket string
	output *testkit.Buffer
}

// The parts of docs/haproxy.cfg that the tests replace.
const (
	balancerBind   = "bind :443 ssl crt /etc/haproxy/parley.pem alpn h2,http/1.1"
	balancerSocket = "/run/haproxy/parley.sock"
	balancerOne    = "10.0.0.11:8402 check port 8404"
	balancerTwo    = "10.0.0.12:8402 check port 8404"
)

// newBalancer returns a balancer that does not run yet.
func newBalancer(t testing.TB) *balancer {
	t.Helper()
	return &balancer{t: t, url: "http://" + testkit.FreeAddress(t), socket: filepath.Join(t.TempDir(), "socket"), output: &testkit.Buffer{}}
}

// start starts HAProxy before two servers and waits until it sends calls to both.
func (b *balancer) start(one, two *server) {
	b.t.Helper()
	text, err := os.ReadFile("../../docs/haproxy.cfg")
	testkit.NoError(b.t, err)
	config := string(text)
	for from, to := range map[string]string{
		balancerBind: "bind " + strings.TrimPrefix(b.url, "http://"), balancerSocket: b.socket,
		balancerOne: one.checked(), balancerTwo: two.checked(),
	} {
		if strings.Count(config, from) != 1 {
			b.t.Fatalf("docs/haproxy.cfg has not exactly one %q", from)
		}
		config = strings.Replace(config, from, to, 1)
	}
	file := filepath.Join(filepath.Dir(b.socket), "haproxy.cfg")
	testkit.NoError(b.t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command("haproxy", "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = b.output, b.output
	life, err := testkit.Launch(cmd)
	if err != nil {
		b.t.Fatalf("%v (make upgrade installs haproxy)", err)
	}
	b.t.Cleanup(func() {
		life.Kill()
		if b.t.Failed() {
			b.t.Logf("the output of HAProxy:\n%s", lastLines(b.output.String(), 40))
		}
	})
	b.await("one", "UP")
	b.await("two", "UP")
}

// checked is the address of a server with that of its admin listener, as HAProxy's configuration has them.
func (s *server) checked() string {
	_, port, _ := net.SplitHostPort(s.admin)
	return s.listen + " check port " + port
}

// await waits until HAProxy says that a server is in a state.
func (b *balancer) await(name, state string) {
	b.t.Helper()
	if !testkit.Eventually(30*time.Second, func() bool { return strings.HasPrefix(b.statistics()[name]["status"], state) }) {
		b.t.Fatalf("for HAProxy server %s is %s, want %s", name, b.statistics()[name]["status"], state)
	}
}

// statistics returns the columns of HAProxy's statistics by server; BACKEND is their sum. While HAProxy starts, there are none.
func (b *balancer) statistics() map[string]map[string]string {
	connection, err := net.Dial("unix", b.socket)
	if err != nil {
		return nil
	}
	defer func() { _ = connection.Close() }()
	if _, err := io.WriteString(connection, "show stat\n"); err != nil {
		return nil
	}
	lines, err := csv.NewReader(connection).ReadAll()
	if err != nil || len(lines) == 0 {
		return nil
	}
	all := map[string]map[string]string{}
	for _, line := range lines[1:] {
		if line[0] != "servers" {
			continue
		}
		columns := map[string]string{}
		for i, value := range line {
			columns[lines[0][i]] = value
		}
		all[line[1]] = columns
	}
	return all
}

// troubleColumns count what HAProxy had to make good, or could not: connections that failed, responses that did not come, requests that it
// sent again, to the same server or another one, and 5xx responses of the servers.
var troubleColumns = []string{"econ", "eresp", "wretr", "wredis", "hrsp_5xx"}

// troubles returns the sum of the columns so far, and lists them.
func (b *balancer) troubles() (sum int, list string) {
	b.t.Helper()
	all := b.statistics()["BACKEND"]
	for _, column := range troubleColumns {
		n, err := strconv.Atoi(all[column])
		if err != nil {
			b.t.Fatalf("HAProxy's statistics have %s=%q", column, all[column])
		}
		sum, list = sum+n, list+fmt.Sprintf(" %s %d", column, n)
	}
	return sum, list
}
