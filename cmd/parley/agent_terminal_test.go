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

	"github.com/parley-chat/parley/agent"
	command "github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// terminal opens a pseudo-terminal: what a person types and reads, and what a command gets.
func terminal(t *testing.T) (person, side *os.File) {
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
	if side, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = side.Close() })
	return person, side
}

// atTerminal runs a command as a person does, who types a line, and returns everything that is on the screen.
func (u *user) atTerminal(typed string, args ...string) (screen string, err error) {
	u.t.Helper()
	person, side := terminal(u.t)
	cmd := u.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
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
	_ = side.Close() // ends the reader after the last output
	<-read
	_, _ = u.all.Write([]byte(shown.String()))
	return shown.String(), err
}

// person runs a command as a person does, wants that it succeeds, and returns the screen.
func (u *user) person(typed string, args ...string) string {
	u.t.Helper()
	screen, err := u.atTerminal(typed, args...)
	if err != nil {
		u.t.Errorf("parley %v at a terminal: %v\n%s", args, err, screen)
	}
	return screen
}

// personFails runs a command as a person does, wants that it fails, and returns the screen.
func (u *user) personFails(typed string, args ...string) string {
	u.t.Helper()
	screen, err := u.atTerminal(typed, args...)
	if err == nil {
		u.t.Errorf("parley %v at a terminal succeeds\n%s", args, screen)
	}
	return screen
}

// TestConfirm: what is dear or final is asked at a terminal, needs --yes without one, and a no costs nothing.
func TestConfirm(t *testing.T) {
	t.Parallel()
	alice := newAgent(t, playServer(t).URL, "alice")
	refused := alice.fails(agent.ExitLimit, "group", "create", "my team")
	if refused["code"] != "confirmation_needed" || refused["next"] != alice.remedy("--yes group create 'my team'") {
		t.Errorf("a dear call without a terminal: %v", refused)
	}
	testkit.Contains(t, alice.personFails("n\n", "group", "create", "team"), "Create a group chat (name: team) for 0.15 USD?",
		"not confirmed; nothing was done")
	screen, err := alice.atTerminal("\x03", "group", "create", "team")
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != command.ExitInterrupted {
		t.Errorf("Ctrl-C at a question: %v\n%s", err, screen)
	}
	testkit.Contains(t, alice.person("y\n", "group", "create", "team"), "paid 0.15 USD")
	if got := alice.fails(agent.ExitLimit, "group", "delete", "team"); got["code"] != "confirmation_needed" || got["paid_usd"] != "0.001" {
		t.Errorf("what is final without a terminal: %v", got)
	}
	testkit.Contains(t, alice.personFails("n\n", "group", "delete", "team"), "Delete team (chat_", ") for everybody? This is final.")
	alice.run("group", "delete", "team", "--yes")
	if screen := alice.person("", "inbox"); !strings.Contains(screen, "no unread messages") || strings.Contains(screen, "{") {
		t.Errorf("a terminal gets no text:\n%s", screen)
	}
	key := filepath.Join(t.TempDir(), "key")
	alice.run("wallet", "export", key)
	if info, err := os.Stat(key); err != nil || info.Size() != 65 || info.Mode().Perm() != 0o600 {
		t.Errorf("the exported key: %v, %v", info, err)
	}
	alice.secretsAreHidden()
}

// TestInitAtTerminal: a terminal is asked for a name and for the agreement, and a no costs nothing.
func TestInitAtTerminal(t *testing.T) {
	t.Parallel()
	alice := newUser(t, playServer(t).URL)
	testkit.Contains(t, alice.personFails("alice\nn\n", "init"), "not confirmed; nothing was done")
	if status := alice.run("status"); status["username"] != nil {
		t.Errorf("after a no there is an account: %v", status)
	}
	testkit.Contains(t, alice.person("alice\ny\n", "init"),
		"an account costs 1.001 USD", "secrets.json", "the wallet takes play money from", "alice is ready",
		"is the account: keep a copy")
}
