//go:build !noserver

package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// user is somebody with a folder of their own who runs the commands of an agent, as a program does: without a terminal.
type user struct {
	t    *testing.T
	env  []string
	home string
	all  *testkit.Buffer // everything that the commands printed
}

// newUser returns a user of a server.
func newUser(t *testing.T, server string, env ...string) *user {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	// The machine's keyring is not used: it is the developer's.
	env = append([]string{"PARLEY_HOME=" + home, "PARLEY_SERVER=" + server, "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere"}, env...)
	return &user{t, env, home, &testkit.Buffer{}}
}

// newAgent returns a user with an account.
func newAgent(t *testing.T, server, name string) *user {
	t.Helper()
	u := newUser(t, server)
	u.run("init", "--username", name, "--yes")
	return u
}

func (u *user) command(args ...string) *exec.Cmd {
	u.t.Helper()
	cmd := itself(u.t.Context(), u.t, args...)
	cmd.Env = append(cmd.Env, u.env...)
	return cmd
}

// try runs a command and returns its output, its errors and its exit code.
func (u *user) try(args ...string) (out, errs string, code int) {
	u.t.Helper()
	cmd := u.command(args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		u.t.Fatal(err)
	}
	_, _ = u.all.Write(append(stdout.Bytes(), stderr.Bytes()...))
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// run runs a command that must succeed, and returns its JSON object.
func (u *user) run(args ...string) map[string]any {
	u.t.Helper()
	out, errs, code := u.try(args...)
	var value map[string]any
	if err := json.Unmarshal([]byte(out), &value); code != 0 || err != nil {
		u.t.Fatalf("parley %s: exit code %d, %v\n%s%s", strings.Join(args, " "), code, err, out, errs)
	}
	return value
}

// fails runs a command that must fail, and returns its error: the only JSON object on standard error.
func (u *user) fails(code int, args ...string) map[string]any {
	u.t.Helper()
	out, errs, got := u.try(args...)
	var value map[string]any
	if err := json.Unmarshal([]byte(errs), &value); got != code || out != "" || err != nil {
		u.t.Fatalf("parley %s: exit code %d, want %d and an error as JSON (%v)\n%s%s", strings.Join(args, " "), got, code, err, out, errs)
	}
	return value
}

// remedy is how an error writes a command of an agent for any shell: with the folder.
func (u *user) remedy(command string) string { return "parley --home " + u.home + " " + command }

// settings returns config.json.
func (u *user) settings() (settings map[string]any) {
	u.t.Helper()
	content, err := os.ReadFile(filepath.Join(u.home, "config.json"))
	testkit.NoError(u.t, errors.Join(err, json.Unmarshal(content, &settings)))
	return settings
}

// walletFile returns the path of the user's only wallet.
func (u *user) walletFile() string {
	u.t.Helper()
	found, err := filepath.Glob(filepath.Join(u.home, "wallets", "*", "wallet.db"))
	if err != nil || len(found) != 1 {
		u.t.Fatalf("the wallets are %v, %v", found, err)
	}
	return found[0]
}

// rows returns the only column of a query in the wallet's file.
func (u *user) rows(query string) (found []string) {
	u.t.Helper()
	u.database(func(db *sql.DB) error {
		rows, err := db.QueryContext(u.t.Context(), query)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // rows.Err says what went wrong
		for rows.Next() {
			var one string
			if err := rows.Scan(&one); err != nil {
				return err
			}
			found = append(found, one)
		}
		return rows.Err()
	})
	return found
}

// openPayments returns the payments whose outcome the wallet does not know.
func (u *user) openPayments() []string {
	u.t.Helper()
	return u.rows("SELECT signed FROM calls WHERE signed IS NOT NULL")
}

func (u *user) database(use func(*sql.DB) error) {
	u.t.Helper()
	db, err := sql.Open("sqlite", "file:"+u.walletFile()+"?_pragma=busy_timeout(10000)")
	if err == nil {
		err = errors.Join(use(db), db.Close())
	}
	testkit.NoError(u.t, err)
}

// texts returns the texts of the messages in an output.
func texts(output map[string]any) (texts []string) {
	messages, _ := output["messages"].([]any)
	for _, m := range messages {
		text, _ := m.(map[string]any)["content"].(string)
		texts = append(texts, text)
	}
	return texts
}

// playServer starts parley dev.
func playServer(t *testing.T, args ...string) *process {
	t.Helper()
	dev := []string{"dev", "--listen", "127.0.0.1:0", "--facilitator-listen", "127.0.0.1:0", "--data", folder(t)}
	return start(t, nil, append(dev, args...)...)
}

// playNetwork starts parley devnet.
func playNetwork(t *testing.T) *process {
	t.Helper()
	return start(t, nil, "devnet", "--listen", "127.0.0.1:0", "--data", folder(t))
}
