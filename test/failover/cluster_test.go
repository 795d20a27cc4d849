//go:build failover

package failover

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
)

//go:embed patroni.yml.tmpl haproxy.cfg.tmpl
var templates embed.FS

// walVolume is the size of the volume for WAL of a node. Replication slots, checkpoints and recycled files need up to 350 MB of it, and
// pg_rewind more for a moment: a standby without room for WAL never follows again.
const walVolume = "640m"

// cluster is three nodes with etcd, Patroni and PostgreSQL, and HAProxy in front of them.
type cluster struct {
	t           testing.TB
	synchronous bool
	root        string // folder of all files
	programs    string // folder of PostgreSQL's programs
	haproxy     string // address of the route through HAProxy
	http        *http.Client
	etcd        map[int]*testkit.Process // by node
	up          map[int]*atomic.Bool     // false for a node that was killed
}

// newCluster starts all nodes and waits until the leader has two standbys.
func newCluster(t testing.TB, synchronous bool) *cluster {
	t.Helper()
	c := &cluster{t: t, synchronous: synchronous, root: filepath.Join(folder, t.Name()), haproxy: "127.0.0.1:5000",
		http: &http.Client{Timeout: time.Second}, etcd: map[int]*testkit.Process{}, up: map[int]*atomic.Bool{}}
	testkit.NoError(t, os.Mkdir(c.root, 0o755)) //nolint:gosec // the nodes run as nobody
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Fatal("PostgreSQL is not in /usr/lib/postgresql: make failover installs it")
	}
	c.programs = found[0]
	for node := 1; node <= nodes; node++ {
		c.prepare(node)
		c.startEtcd(node)
	}
	for node := 1; node <= nodes; node++ {
		c.startPatroni(node)
	}
	c.write("haproxy.cfg", "haproxy.cfg.tmpl", map[string]any{"Listen": c.haproxy, "Addresses": addresses})
	proxy := c.launch("haproxy", "", "haproxy", "-db", "-f", filepath.Join(c.root, "haproxy.cfg"))
	t.Cleanup(func() {
		proxy.Kill()
		c.stop()
	})
	if !testkit.Eventually(90*time.Second, func() bool { return c.whole() == nil }) {
		t.Fatalf("the cluster does not start: %v", c.whole())
	}
	return c
}

// stop ends all nodes.
func (c *cluster) stop() {
	for node := 1; node <= nodes; node++ {
		if err := errors.Join(c.killNode(node), syscall.Unmount(filepath.Join(c.folder(node), "volume"), syscall.MNT_DETACH)); err != nil {
			c.t.Error(err)
		}
	}
}

func (c *cluster) folder(node int) string { return filepath.Join(c.root, "n"+strconv.Itoa(node)) }

// prepare makes the folders of a node: its WAL is on a volume of its own, which can be filled.
func (c *cluster) prepare(node int) {
	c.t.Helper()
	volume := filepath.Join(c.folder(node), "volume")
	testkit.NoError(c.t, os.MkdirAll(volume, 0o755))
	testkit.NoError(c.t, syscall.Mount("tmpfs", volume, "tmpfs", 0, "size="+walVolume))
	testkit.NoError(c.t, execute("chown", "-R", "nobody", c.folder(node)))
	c.write(filepath.Join("n"+strconv.Itoa(node), "patroni.yml"), "patroni.yml.tmpl", map[string]any{
		"Node": node, "Address": addressOf(node), "Addresses": addresses, "Network": network, "Folder": c.folder(node),
		"WAL": filepath.Join(volume, "wal"), "Programs": c.programs, "Synchronous": c.synchronous,
	})
}

// write fills in a template.
func (c *cluster) write(name, from string, values map[string]any) {
	c.t.Helper()
	filled, err := template.New(from).Funcs(template.FuncMap{"inc": func(n int) int { return n + 1 }}).ParseFS(templates, from)
	testkit.NoError(c.t, err)
	var text bytes.Buffer
	testkit.NoError(c.t, filled.Execute(&text, values))
	testkit.NoError(c.t, os.WriteFile(filepath.Join(c.root, name), text.Bytes(), 0o644)) //nolint:gosec // nobody reads it, the user
}

// launch starts a program in a namespace ("" for the hub's) as nobody, with its output in a file.
func (c *cluster) launch(name, namespace, program string, arguments ...string) *testkit.Process {
	c.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.root, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // logs of a test
	testkit.NoError(c.t, err)
	defer func() { _ = log.Close() }()
	if namespace != "" {
		arguments = append([]string{"netns", "exec", namespace, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
			"--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", program}, arguments...) // the checkout may be in /root
		program = "ip"
	}
	cmd := exec.Command(program, arguments...)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := testkit.Launch(cmd)
	testkit.NoError(c.t, err)
	return process
}

func (c *cluster) startEtcd(node int) {
	c.t.Helper()
	var members []string
	for other, address := range addresses {
		members = append(members, fmt.Sprintf("n%d=http://%s:2380", other+1, address))
	}
	peer, clients := fmt.Sprintf("http://%s:2380", addressOf(node)), fmt.Sprintf("http://%s:2379", addressOf(node))
	c.etcd[node] = c.launch(fmt.Sprintf("n%d/etcd", node), namespaceOf(node), "etcd", "--name", "n"+strconv.Itoa(node), "--data-dir",
		c.folder(node)+"/etcd",
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--listen-client-urls", clients+",http://127.0.0.1:2379",
		"--advertise-client-urls", clients, "--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
		"--heartbeat-interval", "100", "--election-timeout", "1000", "--logger", "zap", "--log-level", "warn")
}

func (c *cluster) startPatroni(node int) {
	c.t.Helper()
	patroni, err := filepath.Abs("../../bin/patroni/bin/patroni")
	testkit.NoError(c.t, err)
	up := &atomic.Bool{}
	up.Store(true)
	c.up[node] = up
	go func() { // like systemd, it starts Patroni again when it ends
		for up.Load() {
			process := c.launch(fmt.Sprintf("n%d/patroni", node), namespaceOf(node), "env", "HOME="+c.folder(node), patroni,
				c.folder(node)+"/patroni.yml")
			<-process.Ended
			time.Sleep(time.Second)
		}
	}()
}

// killNode ends everything on a node, as if it lost power.
func (c *cluster) killNode(node int) error {
	c.up[node].Store(false)
	err := killAll(namespaceOf(node))
	// A process whose first thread has ended is in no namespace, and the others still have its ports. PostgreSQL has one thread, and
	// Patroni is started until its port is free.
	if err == nil {
		<-c.etcd[node].Ended
	}
	return err
}

// startNode starts a node that was killed.
func (c *cluster) startNode(node int) {
	c.startEtcd(node)
	c.startPatroni(node)
}

// postmaster returns the pid of PostgreSQL on a node, 0 if it does not run.
func (c *cluster) postmaster(node int) int {
	text, _ := os.ReadFile(filepath.Join(c.folder(node), "data", "postmaster.pid"))
	first, _, _ := strings.Cut(string(text), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	return pid
}

// beginWAL makes a node write to a new WAL file, if it leads.
func (c *cluster) beginWAL(node int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	database, err := pgx.Connect(ctx, fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", addressOf(node)))
	if err != nil {
		return
	}
	_, _ = database.Exec(ctx, "SELECT pg_switch_wal()")
	_ = database.Close(ctx)
}

// ask returns the status and the body of a call of a node's Patroni.
func (c *cluster) ask(method string, node int, path, body string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://%s:8008%s", addressOf(node), path), strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	through := c.http
	if method == http.MethodPost {
		through = &http.Client{} // a switchover takes its time
	}
	response, err := through.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// leader returns the node that leads, 0 if none does.
func (c *cluster) leader() int {
	for node := 1; node <= nodes; node++ {
		if status, _ := c.ask(http.MethodGet, node, "/primary", ""); status == http.StatusOK {
			return node
		}
	}
	return 0
}

// standbys returns the nodes that do not lead.
func (c *cluster) standbys() []int {
	leader := c.leader()
	return slices.DeleteFunc([]int{1, 2, 3}, func(node int) bool { return node == leader })
}

// whole returns nil if the leader has two standbys that receive from it.
func (c *cluster) whole() error {
	leader := c.leader()
	if leader == 0 {
		return fmt.Errorf("no node leads")
	}
	_, text := c.ask(http.MethodGet, leader, "/cluster", "")
	var state struct {
		Members []struct{ Name, Role, State string }
	}
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	leaders, streaming, synchronous := 0, 0, 0
	for _, member := range state.Members {
		switch {
		case member.Role == "leader" && member.State == "running":
			leaders++
		case member.State == "streaming":
			streaming++
		}
		if member.Role == "sync_standby" {
			synchronous++
		}
	}
	if leaders != 1 || streaming != nodes-1 || c.synchronous && synchronous == 0 {
		return fmt.Errorf("the cluster is not whole: %+v, free on the volumes for WAL: %v", state.Members, c.freeForWAL())
	}
	return nil
}

// freeForWAL returns the free space of the volumes for WAL, in MB by node.
func (c *cluster) freeForWAL() map[int]uint64 {
	free := map[int]uint64{}
	for node := 1; node <= nodes; node++ {
		var volume syscall.Statfs_t
		if syscall.Statfs(filepath.Join(c.folder(node), "volume"), &volume) == nil {
			free[node] = volume.Bavail * uint64(volume.Bsize) >> 20 //nolint:gosec // not negative
		}
	}
	return free
}

// url is the database URL of a route: through HAProxy, or with all hosts.
func (c *cluster) url(route string) string {
	hosts, parameters := c.haproxy, ""
	if route == routeHosts {
		hosts, parameters = strings.Join(addresses, ":5432,")+":5432", "&target_session_attrs=read-write"
	}
	return "postgres://postgres@" + hosts + "/parley?sslmode=disable" + parameters
}
