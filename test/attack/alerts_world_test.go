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
	*world
	alert      string
	prometheus string // URL
}

func newAlertWorld(t testing.TB, alert string, test alertCase) *alertWorld {
	t.Helper()
	w := &alertWorld{world: newWorld(t), alert: alert}
	w.s = w.serve(append(append(w.channelFlags(), "--drain-time", "0s"), test.flags...)...)
	w.alice, w.bob = w.s.agent("alice"), w.s.agent("bob")
	w.watch(cmp.Or(test.every, 250*time.Millisecond), test.replace)
	return w
}

// watch starts a Prometheus that scrapes the server, and waits until it has done so for a while.
func (w *alertWorld) watch(every time.Duration, replace [2]string) {
	w.T.Helper()
	rules, err := os.ReadFile(rulesFile)
	testkit.NoError(w.T, err)
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
		testkit.NoError(w.T, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	listen := testkit.FreeAddress(w.T)
	output := &testkit.Buffer{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(folder, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(folder, "data"),
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

var windowForm = regexp.MustCompile(`(\[|(?m:^ +for: ))(\d+)([smhd])(?::\d+s)?(\]?)`)

// shorten makes the windows and pauses of rules sixty times shorter, but a window has at least five scrapes.
func shorten(rules string, every time.Duration) string {
	return windowForm.ReplaceAllStringFunc(rules, func(text string) string {
		parts := windowForm.FindStringSubmatch(text)
		n, _ := strconv.Atoi(parts[2])
		length := time.Duration(n) * map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": day}[parts[3]] / 60
		length = min(length, longest)
		if parts[1] == "[" {
			length = max(length, 5*every)
		}
		text = fmt.Sprintf("%s%dms", parts[1], length.Milliseconds())
		if strings.Contains(parts[0], ":") && parts[1] == "[" {
			text += ":" + every.String()
		}
		return text + parts[4]
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

// lock locks a table until the returned function ends the session, as the runbook does with pg_terminate_backend.
func (w *alertWorld) lock(table string) (end func()) {
	w.T.Helper()
	session, err := pgx.Connect(w.T.Context(), w.DatabaseURL)
	if err == nil {
		_, err = session.Exec(w.T.Context(), "BEGIN; LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
	}
	testkit.NoError(w.T, err)
	return func() {
		w.cluster(fmt.Sprintf("SELECT pg_terminate_backend(%d)", session.PgConn().PID()))
		_ = session.Close(w.T.Context())
	}
}

var alertForm = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)

// alertNames returns the names of all alerts of the rules.
func alertNames(t testing.TB) (names []string) {
	t.Helper()
	content, err := os.ReadFile(rulesFile)
	testkit.NoError(t, err)
	for _, found := range alertForm.FindAllStringSubmatch(string(content), -1) {
		names = append(names, found[1])
	}
	return names
}
