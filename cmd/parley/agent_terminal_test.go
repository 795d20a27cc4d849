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
	next, _ := alice.fails(agent.ExitLimit, "group", "create", "team")["next"].(string)
	approve := strings.Fields(next)[1:]
	for _, variable := range console.AgentEnvironment {
		if screen, err := alice.atTerminal("y\n", []string{variable + "=1"}, approve...); err == nil ||
			!strings.Contains(screen, "person_needed") {
			t.Errorf("with %s an approval was given:\n%s", variable, screen)
		}
	}
	if screen, err := alice.atTerminal("n\n", nil, approve...); err == nil ||
		!strings.Contains(screen, "Allow createGroupChat for 0.15 USD, once?") ||
		!strings.Contains(screen, `"name": "team"`) {
		t.Errorf("no means no: %v\n%s", err, screen)
	}
	screen, err := alice.atTerminal("\x03", nil, approve...)
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != agent.ExitInterrupted {
		t.Errorf("Ctrl-C at a question: %v\n%s", err, screen)
	}
	if screen, err := alice.atTerminal("y\n", nil, approve...); err != nil {
		t.Errorf("a person cannot approve: %v\n%s", err, screen)
	}
	if made := alice.run("group", "create", "team"); made["paid_usd"] != "0.15" || made["today_usd"] != "0.001" {
		t.Errorf("the approved call: %v", made)
	}
	if sent := alice.run("send", "team", "hello"); sent["to"] != "team" {
		t.Errorf("the group chat has no name: %v", sent)
	}
	if screen, err := alice.atTerminal("n\n", nil, "group", "delete", "team"); err == nil || !strings.Contains(screen, "This is final") {
		t.Errorf("a group chat is deleted without a question: %v\n%s", err, screen)
	}
	for _, args := range [][]string{{"info", "team"}, {"delete", "team", "--yes"}} {
		if screen, err := alice.atTerminal("", nil, append([]string{"group"}, args...)...); err != nil {
			t.Errorf("group %s: %v\n%s", args, err, screen)
		}
	}
	if screen, err := alice.atTerminal("y\n", nil, "channel", "create", "weather"); err != nil || !strings.Contains(screen, "paid 0.50 USD") {
		t.Errorf("a person is not asked when a call is above the limit: %v\n%s", err, screen)
	}
	if screen, err := alice.atTerminal("", nil, "find", "weather", "--channels"); err != nil || !strings.Contains(screen, "use the ids") {
		t.Errorf("find does not say that a name is looked up again: %v\n%s", err, screen)
	}
	if screen, err := alice.atTerminal("y\n", nil, "wallet", "limits", "--per-day", "2"); err != nil ||
		!strings.Contains(screen, "per day  2.00 USD") {
		t.Errorf("a person cannot raise limits: %v\n%s", err, screen)
	}
	key := filepath.Join(t.TempDir(), "key")
	if screen, err := alice.atTerminal("y\n", nil, "wallet", "export", key); err != nil {
		t.Errorf("a person cannot export the key: %v\n%s", err, screen)
	}
	if info, err := os.Stat(key); err != nil || info.Size() != 65 || info.Mode().Perm() != 0o600 {
		t.Errorf("the exported key: %v, %v", info, err)
	}
	alice.run("wallet", "freeze")
	alice.unfreeze()
	if screen, err := alice.atTerminal("", nil, "inbox"); err != nil || !strings.Contains(screen, "no messages") ||
		strings.Contains(screen, "{") {
		t.Errorf("a person gets no table: %v\n%s", err, screen)
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
	screen, err := alice.atTerminal("alice\ny\n", nil, "init")
	if err != nil || !strings.Contains(screen, "once, and 0.001 USD to read it") || !strings.Contains(screen, "alice is ready") {
		t.Errorf("a person cannot make an account: %v\n%s", err, screen)
	}
	alice.secretsAreHidden()
}
