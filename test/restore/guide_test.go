//go:build restore

package restore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// guidePath is the guide whose commands the drill runs.
const guidePath = "../../docs/disaster.md"

// A step of the guide is a comment and the code block after it.
var stepForm = regexp.MustCompile("(?m)^ *<!-- restore drill: ([a-z-]+) -->\n *```(?:sh|ini)\n((?s:.*?))^ *```$")

// readGuide returns the code blocks by step.
func readGuide(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(guidePath)
	testkit.NoError(t, err)
	steps := map[string]string{}
	for _, found := range stepForm.FindAllStringSubmatch(string(text), -1) {
		steps[found[1]] = found[2]
	}
	return steps
}

// The programs of the guide that this machine has otherwise: PostgreSQL and Parley are no services here, and the user of PostgreSQL is
// the one of this process, unless that is root.
const (
	sudo = `#!/bin/bash
[ "$1" = -u ] || exec "$@"
user=$2; shift 2
[ "$(id -u)" = 0 ] || exec "$@"
exec runuser -u "$user" -- "$@"
`
	systemctl = `#!/bin/bash
set -euo pipefail
case "$1 $2" in
"stop postgresql") [ ! -e "$DRILL/data/postmaster.pid" ] || sudo -u postgres pg_ctl -D "$DRILL/data" -m fast -w stop ;;
"start postgresql")
  sudo -u postgres pg_ctl -D "$DRILL/data" -w -l "$DRILL/postgres.log" -o "-k $PGHOST -c listen_addresses=" start ||
    { tail "$DRILL/postgres.log"; exit 1; } ;;
"restart postgresql") "$0" stop postgresql; "$0" start postgresql ;;
"stop parley")
  if [ -e "$DRILL/parley.pid" ]; then
    kill -TERM "$(cat "$DRILL/parley.pid")" && tail --pid="$(cat "$DRILL/parley.pid")" -f /dev/null
    rm "$DRILL/parley.pid"
  fi ;;
"start parley")
  parley serve >>"$DRILL/parley.log" 2>&1 </dev/null &
  echo $! >"$DRILL/parley.pid"
  for _ in $(seq 300); do curl -fsS "http://$PARLEY_ADMIN_LISTEN/readyz" >/dev/null 2>&1 && exit 0; sleep 0.1; done
  tail "$DRILL/parley.log"; exit 1 ;;
*) echo "the drill has no systemctl $*" >&2; exit 2 ;;
esac
`
)

// at returns a block of the guide with the places and the time of the drill.
func (d *drill) at(block string) string {
	return strings.NewReplacer(
		"/var/lib/postgresql/15/main", d.folder+"/data", "/var/lib/pgbackrest", d.folder+"/repository", "/var/backups/parley", d.folder+"/dumps",
		"2026-11-23 08:00:00+00", d.point, "CHANGE-ME", "a password of the drill",
	).Replace(block)
}

// shell runs commands as the guide's reader would, and returns what they print.
func (d *drill) shell(commands string) (string, error) {
	command := exec.CommandContext(context.WithoutCancel(d.t.Context()), "bash", "-euo", "pipefail", "-c", commands)
	command.Dir, command.Env = d.folder, d.environment
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, output)
	}
	return string(output), err
}
