//go:build attack

package attack

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/parley-chat/parley/internal/testkit"
)

const (
	rulesFile = "../../deploy/monitoring/rules.yaml"
	// firingTime is how long a fault may take to raise its alert, and its remedy to end it.
	firingTime = 2 * time.Minute
	// longest is what remains of longer windows and pauses of the rules.
	longest = 10 * time.Second
)

// alertCase is a fault that an alert must notice.
type alertCase struct {
	every   time.Duration // between scrapes; 250 ms if 0
	replace [2]string     // of a bound of the rule, which a test would take too long to reach
	flags   []string      // of the server
	run     func(w *alertWorld)
}

// alertWorld has a server that offers payment channels, and a real Prometheus with the alert rules, whose windows and pauses are
// sixty times shorter.
type alertWorld struct {
	*channelWorld
	alert      string
	prometheus string // URL
}

func newAlertWorld(t testing.TB, alert string, test alertCase) *alertWorld {
	t.Helper()
	w := &alertWorld{channelWorld: &channelWorld{world: newWorld(t), delay: day}, alert: alert}
	admin := testkit.FreeAddress(t)
	w.s = w.newServer(append(append(w.channelFlags(), "--admin-listen", admin, "--drain-time", "0s"), test.flags...)...)
	w.s.admin = admin
	w.s.start("")
	w.alice, w.bob = w.s.agent("alice"), w.s.agent("bob")
	w.watch(cmp.Or(test.every, 250*time.Millisecond), test.replace)
	return w
}

// watch starts a Prometheus that scrapes the server, and waits until it has done so for a while.
func (w *alertWorld) watch(every time.Duration, replace [2]string) {
	w.T.Helper()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		w.T.Fatal(err)
	}
	text := shorten(string(rules), every)
	if replace[0] != "" {
		if strings.Count(text, replace[0]) == 0 {
			w.T.Fatalf("the rules have no %q", replace[0])
		}
		text = strings.ReplaceAll(text, replace[0], replace[1])
	}
	folder := w.T.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: %[1]s, scrape_timeout: %[1]s, evaluation_interval: %[1]s}\nrule_files: [rules.yaml]\n"+
		"scrape_configs:\n  - job_name: parley\n    static_configs: [{targets: ['%[2]s']}]\n", every, w.s.admin)
	for name, content := range map[string]string{"rules.yaml": text, "prometheus.yaml": config} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			w.T.Fatal(err)
		}
	}
	listen := testkit.FreeAddress(w.T)
	output := &testkit.Buffer{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(folder, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+listen, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = output, output
	process, err := testkit.Launch(cmd)
	if err != nil {
		w.T.Fatalf("%v (make alerts installs it)", err)
	}
	w.T.Cleanup(process.Kill)
	w.prometheus = "http://" + listen
	if !testkit.Eventually(firingTime, func() bool { return len(w.query("count_over_time(up[1h]) > 3")) > 0 }) {
		w.T.Fatalf("Prometheus does not scrape the server:\n%s", output)
	}
}

var (
	rangeForm  = regexp.MustCompile(`\[(\d+[smhd])(?::(\d+s))?\]`)
	pauseForm  = regexp.MustCompile(`(?m)^( +for: )(\d+[smh])$`)
	dayPattern = regexp.MustCompile(`^(\d+)d$`)
)

// shorten makes the windows and pauses of rules sixty times shorter, but a window has at least five scrapes.
func shorten(rules string, every time.Duration) string {
	short := func(text string, least time.Duration) string {
		text = dayPattern.ReplaceAllStringFunc(text, func(days string) string {
			n, _ := strconv.Atoi(strings.TrimSuffix(days, "d"))
			return fmt.Sprintf("%dh", 24*n)
		})
		length, err := time.ParseDuration(text)
		if err != nil {
			panic(err)
		}
		return fmt.Sprintf("%dms", max(min(length/60, longest), least).Milliseconds())
	}
	rules = rangeForm.ReplaceAllStringFunc(rules, func(window string) string {
		parts := rangeForm.FindStringSubmatch(window)
		if parts[2] != "" {
			return "[" + short(parts[1], 5*every) + ":" + every.String() + "]"
		}
		return "[" + short(parts[1], 5*every) + "]"
	})
	return pauseForm.ReplaceAllStringFunc(rules, func(pause string) string {
		parts := pauseForm.FindStringSubmatch(pause)
		return parts[1] + short(parts[2], 0)
	})
}

// query returns the series of an instant query.
func (w *alertWorld) query(expression string) []json.RawMessage {
	w.T.Helper()
	var reply struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	w.ask("/api/v1/query?query="+url.QueryEscape(expression), &reply)
	if reply.Error != "" {
		w.T.Errorf("%s: %s", expression, reply.Error)
	}
	return reply.Data.Result
}

func (w *alertWorld) ask(path string, reply any) {
	w.T.Helper()
	response, err := http.Get(w.prometheus + path)
	if err != nil {
		return // it starts
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusServiceUnavailable {
		return // it starts
	}
	if err := json.NewDecoder(response.Body).Decode(reply); err != nil {
		w.T.Errorf("%s: %v", path, err)
	}
}

// firing reports whether the alert of this world fires.
func (w *alertWorld) firing() bool {
	w.T.Helper()
	var reply struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	w.ask("/api/v1/alerts", &reply)
	for _, alert := range reply.Data.Alerts {
		if alert.Labels["alertname"] == w.alert && alert.State == "firing" {
			return true
		}
	}
	return false
}

// fires waits until the alert fires, while it makes the fault again and again.
func (w *alertWorld) fires(again func()) {
	w.T.Helper()
	if !testkit.Eventually(firingTime, func() bool { again(); return w.firing() }) {
		w.T.Fatalf("%s does not fire", w.alert)
	}
}

// ends waits until the alert is over, while it makes calls.
func (w *alertWorld) ends(again func()) {
	w.T.Helper()
	if !testkit.Eventually(firingTime, func() bool { again(); return !w.firing() }) {
		w.T.Errorf("%s does not end", w.alert)
	}
}

func nothing() {}

// database runs statements on a connection to another database of the same cluster.
func (w *alertWorld) database(statements ...string) {
	w.T.Helper()
	address, err := url.Parse(w.DatabaseURL)
	if err != nil {
		w.T.Fatal(err)
	}
	name := strings.TrimPrefix(address.Path, "/")
	address.Path = "/postgres"
	connection, err := pgx.Connect(w.T.Context(), address.String())
	if err != nil {
		w.T.Fatal(err)
	}
	defer connection.Close(w.T.Context())
	for _, statement := range statements {
		if _, err := connection.Exec(w.T.Context(), strings.ReplaceAll(statement, "DATABASE_NAME", name)); err != nil {
			w.T.Fatalf("%s: %v", statement, err)
		}
	}
}

// lock locks a table until the returned function ends the session, as the runbook does with pg_terminate_backend.
func (w *alertWorld) lock(table string) (end func()) {
	w.T.Helper()
	session, err := pgx.Connect(w.T.Context(), w.DatabaseURL)
	if err == nil {
		_, err = session.Exec(w.T.Context(), "BEGIN; LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	}
	if err != nil {
		w.T.Fatal(err)
	}
	return func() {
		w.database(fmt.Sprintf("SELECT pg_terminate_backend(%d)", session.PgConn().PID()))
		_ = session.Close(w.T.Context())
	}
}

// alertNames returns the names of all alerts of the rules.
func alertNames(t testing.TB) (names []string) {
	t.Helper()
	content, err := os.ReadFile(rulesFile)
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert string }
		}
	}
	if err == nil {
		err = yaml.Unmarshal(content, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	return names
}
