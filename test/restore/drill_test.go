//go:build restore

package restore

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// step is a step of the guide that the drill follows.
type step struct {
	name   string
	fails  bool   // the commands must end with an error
	prints string // what they must print
}

// The steps of the two ways to back up, and those that follow after both.
var (
	backUp = map[string][]step{
		"pgbackrest": {{name: "archive"}, {name: "stanza"}, {name: "backup", prints: "backup command end: completed successfully"}},
		"pg-dump":    {},
	}
	dump     = step{name: "dump"}
	restores = map[string][]step{
		"pgbackrest": {{name: "stop"}, {name: "restore", prints: "restore command end: completed successfully"},
			{name: "start-database", prints: "f\n"}},
		"pg-dump": {{name: "stop"}, {name: "restore-dump"}},
	}
	recovers = []step{
		{name: "migrate", prints: "schema"},
		{name: "reconcile", fails: true, prints: "behind"},
		{name: "recover", prints: "entered"},
		{name: "reconcile-again", prints: "difference"},
		{name: "start"},
	}
	backUpAgain = map[string][]step{"pgbackrest": {{name: "backup-again", prints: "backup command end: completed successfully"}},
		"pg-dump": {}}
)

// steps are all steps of a way, in order.
func steps(way string) []step {
	all := slices.Concat(backUp[way], restores[way], recovers, backUpAgain[way])
	if way == "pg-dump" {
		all = slices.Insert(all, 0, dump)
	}
	return all
}

// drill is one run.
type drill struct {
	t           *testing.T
	way, skip   string
	guide       map[string]string
	folder, url string
	environment []string
	world       *testkit.World
	point       string // the time to which pgBackRest restores
	table       []string
	leftOut     bool
}

// follow runs a step of the guide. The step in DRILL_SKIP is left out, so that the drill must fail.
func (d *drill) follow(all ...step) {
	d.t.Helper()
	for _, s := range all {
		commands, ok := d.guide[s.name]
		if !ok {
			d.t.Fatalf("the guide has no step %s", s.name)
		}
		if s.name == d.skip {
			d.note(s.name, "left out", 0)
			d.leftOut = true
			continue
		}
		begun := time.Now()
		output, err := d.shell(d.at(commands))
		if (err != nil) != s.fails || !strings.Contains(output, s.prints) {
			d.t.Fatalf("step %s: %v, want an error: %t, and %q in what it prints\n%s", s.name, err, s.fails, s.prints, output)
		}
		d.t.Logf("step %s:\n%s", s.name, output)
		d.note(s.name, "done", time.Since(begun))
	}
}

func (d *drill) note(step, result string, took time.Duration) {
	d.table = append(d.table, fmt.Sprintf("| %-10s | %-15s | %-8s | %5.1f s |", d.way, step, result, took.Seconds()))
}

// TestRestoreDrill follows the guide, in both ways.
func TestRestoreDrill(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"pgbackrest", "pg-dump"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t, way)
			defer func() { fmt.Println(strings.Join(d.table, "\n")) }()
			d.run()
		})
	}
}

// TestSkippedSteps is the negative control: the drill fails if any step of the guide is left out. DRILL_CONTROLS names the steps, or is
// empty for all.
func TestSkippedSteps(t *testing.T) {
	t.Parallel()
	wanted := strings.Fields(os.Getenv("DRILL_CONTROLS"))
	for _, way := range []string{"pgbackrest", "pg-dump"} {
		for _, s := range steps(way) {
			if len(wanted) > 0 && !slices.Contains(wanted, way+"/"+s.name) {
				continue
			}
			t.Run(way+"/"+s.name, func(t *testing.T) {
				control := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestRestoreDrill$/^"+way+"$", "-test.count=1")
				control.Env = append(os.Environ(), "DRILL_SKIP="+s.name)
				output, err := control.CombinedOutput()
				// The drill came to the step, and failed because of it.
				leftOut := fmt.Sprintf("| %-10s | %-15s | left out |", way, s.name)
				if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 1 || !strings.Contains(string(output), leftOut) {
					t.Errorf("the drill without %s: %v\n%s", s.name, err, output)
				}
				messages := logLine.FindAll(output, -1)
				fmt.Printf("| %-10s | without %-15s | %s |\n", way, s.name, messages[len(messages)-1])
			})
		}
	}
}

// logLine is the beginning of a message of a test. The last one is why the test failed.
var logLine = regexp.MustCompile(`[a-z]+_test\.go:\d+: .{0,100}`)

// newDrill starts an empty PostgreSQL and the payment network, and writes the settings.
func newDrill(t *testing.T, way string) *drill {
	t.Helper()
	folder, err := os.MkdirTemp("/var/tmp", "parley-restore-")
	testkit.NoError(t, err)
	d := &drill{t: t, way: way, skip: os.Getenv("DRILL_SKIP"), guide: readGuide(t), folder: folder}
	if d.skip != "" && !slices.ContainsFunc(steps(way), func(s step) bool { return s.name == d.skip }) {
		t.Skipf("%s has no step %s", way, d.skip)
	}
	t.Cleanup(func() {
		d.t = t
		if output, err := d.shell("systemctl stop parley; systemctl stop postgresql"); err != nil {
			t.Error(err, output)
		}
		if t.Failed() && d.skip == "" { // without a step it has to fail
			fmt.Println("the files of the failed drill are in", folder)
			return
		}
		_ = os.RemoveAll(folder)
	})
	d.world = testkit.NewWorld(t, "postgres://postgres@/parley?host="+folder+"/socket")
	network := httptest.NewServer(d.world.Facilitator)
	t.Cleanup(network.Close)
	address := testkit.FreeAddress(t)
	d.url = "http://" + address
	for name, content := range map[string]string{
		"bin/sudo": sudo, "bin/systemctl": systemctl, "pgbackrest.conf": d.at(d.guide["configuration"]),
		"server-secret": strings.Repeat("5a", 32) + "\n", "key": strings.TrimPrefix(devnet.Accounts()[8].PrivateKey, "0x") + "\n",
	} {
		d.writeFile(name, content)
	}
	d.environment = append(os.Environ(),
		"DRILL="+folder, "PATH="+folder+"/bin:"+parleyFolder(t)+":"+postgresFolder(t)+":"+os.Getenv("PATH"), "PGHOST="+folder+"/socket",
		"PGUSER=postgres",
		"PGBACKREST_CONFIG="+folder+"/pgbackrest.conf", "PGBACKREST_LOG_PATH="+folder+"/logs", "PGBACKREST_LOCK_PATH="+folder+"/locks",
		"PGBACKREST_PG1_SOCKET_PATH="+folder+"/socket", "PGBACKREST_LOG_LEVEL_CONSOLE=info",
		"PARLEY_DATABASE_URL="+d.world.DatabaseURL, "PARLEY_PAYEE="+devnet.Payee, "PARLEY_NETWORK="+devnet.NetworkID,
		"PARLEY_FACILITATOR_URL="+network.URL, "PARLEY_RPC_URL="+network.URL+"/rpc", "PARLEY_LISTEN="+address,
		"PARLEY_ADMIN_LISTEN="+testkit.FreeAddress(t),
		"PARLEY_AUTHORIZER_KEY=file:"+folder+"/key", "PARLEY_SERVER_SECRET=file:"+folder+"/server-secret", "PARLEY_DRAIN_TIME=0s",
	)
	d.must(`mkdir socket repository dumps logs locks
[ "$(id -u)" != 0 ] || chown postgres socket repository dumps logs locks .`)
	d.initialize()
	d.must("createdb --template=template0 --locale=C.UTF-8 --encoding=UTF8 parley; parley migrate")
	return d
}

// initialize makes an empty PostgreSQL, as its package does.
func (d *drill) initialize() {
	d.t.Helper()
	d.must(`sudo -u postgres initdb -D data -A trust -U postgres -E UTF8 --locale=C.UTF-8 --no-instructions; systemctl start postgresql`)
}

func (d *drill) must(commands string) string {
	d.t.Helper()
	output, err := d.shell(commands)
	if err != nil {
		d.t.Fatalf("%s\n%v", commands, err)
	}
	return output
}

func (d *drill) writeFile(name, content string) {
	d.t.Helper()
	path := filepath.Join(d.folder, name)
	testkit.NoError(d.t, errors.Join(os.Chmod(d.folder, 0o755), os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(content), 0o755)))
}

// parleyFolder is the folder of the program under test.
func parleyFolder(t *testing.T) string {
	t.Helper()
	folder, err := filepath.Abs("../../bin")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "parley"))
	}
	if err != nil {
		t.Fatalf("build bin/parley first: %v", err)
	}
	return folder
}

// postgresFolder is the folder of the newest PostgreSQL of the machine.
func postgresFolder(t *testing.T) string {
	t.Helper()
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(folders) == 0 {
		t.Fatal("PostgreSQL is not installed")
	}
	return folders[len(folders)-1]
}

// answers reports whether a server runs.
func (d *drill) answers() bool {
	response, err := http.Get(d.url + "/") //nolint:noctx // local
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return true
}
