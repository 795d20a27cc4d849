//go:build linux && !noserver

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/testkit"
)

// terminal opens a pseudo-terminal: what a person types and reads, and what a command gets.
func terminal(t *testing.T) (person, command *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	fd := int(person.Fd())
	testkit.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	testkit.NoError(t, err)
	if command, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Close() })
	return person, command
}

// atTerminal runs a command as a person does, who types a line, and returns everything that is on the screen.
func (u *user) atTerminal(typed string, env []string, args ...string) (screen string, err error) {
	u.t.Helper()
	person, command := terminal(u.t)
	cmd := u.command(args...)
	cmd.Env = append(withoutRuntimes(cmd.Env), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = command, command, command
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that it is /dev/tty too
	shown, read := &testkit.Buffer{}, make(chan struct{})
	go func() {
		defer close(read)
		text := make([]byte, 4096)
		for {
			n, err := person.Read(text)
			_, _ = shown.Write(text[:n])
			if err != nil {
				return
			}
		}
	}()
	testkit.NoError(u.t, cmd.Start())
	if typed == "\x03" { // before the command asks, it is lost
		testkit.Eventually(30*time.Second, func() bool { return strings.Contains(shown.String(), "[y/N]") })
	}
	if _, err := person.WriteString(typed); err != nil {
		u.t.Fatal(err)
	}
	err = cmd.Wait()
	_ = command.Close() // ends the reader after the last output
	<-read
	_, _ = u.all.Write([]byte(shown.String()))
	return shown.String(), err
}

// person runs a command as a person does, wants that it succeeds, and returns the screen.
func (u *user) person(typed string, args ...string) string {
	u.t.Helper()
	screen, err := u.atTerminal(typed, nil, args...)
	if err != nil {
		u.t.Errorf("parley %v at a terminal: %v\n%s", args, err, screen)
	}
	return screen
}

// personFails runs a command as a person does, wants that it fails, and returns the screen.
func (u *user) personFails(typed string, args ...string) string {
	u.t.Helper()
	screen, err := u.atTerminal(typed, nil, args...)
	if err == nil {
		u.t.Errorf("parley %v at a terminal succeeds\n%s", args, screen)
	}
	return screen
}

// approve runs a command that a person must approve, and lets one approve it.
func (u *user) approve(args ...string) {
	u.t.Helper()
	u.person("y\n", u.approval(args...)...)
}

// approval runs a command that a person must approve, and returns the command that does.
func (u *user) approval(args ...string) []string {
	u.t.Helper()
	next, _ := u.fails(agent.ExitLimit, args...)["next"].(string)
	return strings.Fields(next)[1:]
}

// withoutRuntimes removes the variables of agents' runtimes: the tests may run in one.
func withoutRuntimes(env []string) (kept []string) {
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if name != "CLAUDECODE" && name != "CODEX_SANDBOX" && name != "CURSOR_AGENT" {
			kept = append(kept, variable)
		}
	}
	return kept
}

// TestPerson: what only a person may do works at a terminal, is asked for, and does not work in the runtime of an agent.
func TestPerson(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newAgent(t, server.URL, "alice")
	approve := alice.approval("group", "create", "team")
	for _, variable := range console.AgentEnvironment {
		if screen, err := alice.atTerminal("y\n", []string{variable + "=1"}, approve...); err == nil ||
			!strings.Contains(screen, "person_needed") {
			t.Errorf("with %s an approval was given:\n%s", variable, screen)
		}
	}
	says(t, alice.personFails("n\n", approve...), "alice in "+alice.home+": Allow createGroupChat for 0.15 USD, once?", `"name": "team"`)
	screen, err := alice.atTerminal("\x03", nil, approve...)
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != agent.ExitInterrupted {
		t.Errorf("Ctrl-C at a question: %v\n%s", err, screen)
	}
	if screen, err := alice.atTerminal("y\n", []string{"PARLEY_HOME=" + t.TempDir()}, approve...); err != nil {
		t.Errorf("a person with another folder in the environment cannot approve: %v\n%s", err, screen)
	}
	if plan := mustJSON(t, alice.run("group", "create", "team", "--dry-run")); strings.Contains(plan, "problem") {
		t.Errorf("the plan of an approved call: %s", plan)
	}
	if made := alice.run("group", "create", "team"); made["paid_usd"] != "0.15" || made["today_usd"] != "0.001" {
		t.Errorf("the approved call: %v", made)
	}
	if sent := alice.run("send", "team", "hello"); sent["to"] != "team" {
		t.Errorf("the group chat has no name: %v", sent)
	}
	says(t, alice.personFails("n\n", "group", "delete", "team"), "This is final")
	alice.person("", "group", "info", "team")
	alice.person("", "group", "delete", "team", "--yes")
	says(t, alice.person("y\n", "channel", "create", "weather"), "paid 0.50 USD") // asked, because it is above the limit
	says(t, alice.person("", "find", "weather", "--channels"), "use the ids")     // a name is looked up again
	says(t, alice.person("y\n", "wallet", "limits", "--per-day", "2"), "per day  2.00 USD")
	key := filepath.Join(t.TempDir(), "key")
	alice.person("y\n", "wallet", "export", key)
	if info, err := os.Stat(key); err != nil || info.Size() != 65 || info.Mode().Perm() != 0o600 {
		t.Errorf("the exported key: %v, %v", info, err)
	}
	alice.run("wallet", "freeze")
	alice.unfreeze()
	if screen := alice.person("", "inbox"); !strings.Contains(screen, "no messages") || strings.Contains(screen, "{") {
		t.Errorf("a person gets no table:\n%s", screen)
	}
	alice.secretsAreHidden()
}

// TestInitAtTerminal: a person is asked for a name and for their agreement, and a no costs nothing.
func TestInitAtTerminal(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	if screen, err := alice.atTerminal("Alice Dev!\n\nalice\nn\n", nil, "init"); err == nil ||
		!strings.Contains(screen, "not agreed; nothing was changed") || strings.Count(screen, "a username has 1 to 32 characters") != 2 {
		t.Errorf("no means no: %v\n%s", err, screen)
	}
	if status := alice.run("status"); status["account"] != false {
		t.Errorf("after a no there is an account: %v", status)
	}
	says(t, alice.person("alice\ny\n", "init"), "once, and 0.001 USD to read it", "alice is ready")
	alice.secretsAreHidden()
}
