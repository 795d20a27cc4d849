//go:build unix

package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
)

// ownerFolder names the environment variable that turns this test binary into a process that owns a server, see startOwner.
const ownerFolder = "PARLEY_TEST_OWNER_FOLDER"

// root is where all tests' folders are. Unlike those of t.TempDir, its parents let every user pass.
var root string

func TestMain(m *testing.M) {
	if folder := os.Getenv(ownerFolder); folder != "" {
		if err := beOwner(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

// runTests also checks that the tests leave no folder and no process behind.
func runTests(m *testing.M) (code int) {
	var err error
	if root, err = os.MkdirTemp("", "parley-embedded-test-"); err != nil {
		panic(err)
	}
	if root, err = filepath.EvalSymlinks(root); err != nil { // PostgreSQL names its folder without links
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	if err := os.Chmod(root, 0o755); err != nil {
		panic(err)
	}
	code = m.Run()
	for _, left := range entries(root) {
		fmt.Printf("the tests left %s behind\n", left)
		code = 1
	}
	for _, process := range entries("/proc") {
		line, _ := os.ReadFile(process + "/cmdline") // fails for what is no process
		program, _ := os.Readlink(process + "/exe")  // a guard may just be ending
		if filepath.Base(program) == "postgres" && bytes.Contains(line, []byte(root)) {
			fmt.Printf("the tests left %s running: %s\n", process, line)
			code = 1
		}
	}
	return code
}

func entries(folder string) (paths []string) {
	all, _ := os.ReadDir(folder)
	for _, entry := range all {
		paths = append(paths, filepath.Join(folder, entry.Name()))
	}
	return paths
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(openFolder(t), "not", "there", "yet")
	server := mustStart(t, Options{Folder: folder})
	if server.Folder() != folder {
		t.Errorf("the data is in %s, want it in %s", server.Folder(), folder)
	}
	_, err := Start(t.Context(), Options{Folder: folder})
	wantError(t, "a second start while the first one runs", err, "another parley process, or its PostgreSQL, uses "+server.Folder())
	wantValues(t, server, map[string]string{
		"CREATE TABLE kept AS SELECT 'grüße' AS word": "",
		"SELECT upper('grüße')":                       "GRÜßE", // a locale that knows more than ASCII
		"SHOW listen_addresses":                       "",
		"SHOW unix_socket_permissions":                "0700",
		"SHOW server_encoding":                        "UTF8",
		"SHOW fsync":                                  "on",
		"SHOW synchronous_commit":                     "on",
		"SHOW full_page_writes":                       "on",
	})
	var process int
	content, readErr := os.ReadFile(filepath.Join(server.data(), "postmaster.pid"))
	_, scanErr := fmt.Sscan(string(content), &process)
	group, groupErr := syscall.Getpgid(process)
	testkit.NoError(t, errors.Join(readErr, scanErr, groupErr))
	if group == syscall.Getpgrp() {
		t.Error("PostgreSQL is in the process group of the test, where Ctrl-C reaches it")
	}
	mustStop(t, server)
	mustStop(t, server)
	if _, err := pgx.Connect(t.Context(), server.URL("postgres")); err == nil {
		t.Error("the server responds after it was stopped")
	}

	wantValues(t, mustStart(t, Options{Folder: folder, Volatile: true}), map[string]string{
		"SELECT word FROM kept":   "grüße",
		"SHOW fsync":              "off",
		"SHOW synchronous_commit": "off",
		"SHOW full_page_writes":   "off",
	})
}

// TestKilledOwner kills the process that started the server: PostgreSQL has to end, and must not hinder the next start.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	first := startOwner(t, folder, nil)
	query(t, first.url, "CREATE TABLE kept AS SELECT 'first' AS word")
	first.kill(t)
	lock, err := lockFile(filepath.Join(folder, "postgres.log"), syscall.LOCK_EX) // waits for the end of PostgreSQL
	testkit.NoError(t, err)
	testkit.NoError(t, lock.Close())

	second := startOwner(t, folder, nil)
	query(t, second.url, "INSERT INTO kept VALUES ('second')")
	second.kill(t)
	third := mustStart(t, Options{Folder: folder}) // at once: the second one's PostgreSQL is just shutting down
	wantValues(t, third, map[string]string{"SELECT string_agg(word, ' ' ORDER BY word) FROM kept": "first second"})
}

func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	folder, uid := newFolder(t), uint32(os.Geteuid())
	var other *syscall.Credential
	if uid == 0 {
		found, err := user.Lookup("nobody")
		testkit.NoError(t, err)
		other = &syscall.Credential{}
		_, err = fmt.Sscan(found.Uid+" "+found.Gid, &other.Uid, &other.Gid)
		testkit.NoError(t, errors.Join(err, own(folder, other)))
		uid = other.Uid
	}
	owner := startOwner(t, folder, other)
	query(t, owner.url, "CREATE TABLE kept AS SELECT 'ordinary' AS word")
	owner.stop(t)
	info, err := os.Stat(filepath.Join(folder, "data"))
	testkit.NoError(t, err)
	if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
		t.Errorf("the data belongs to the user %d, want %d, who started the server", got, uid)
	}

	// For root this is another user's cluster, which has to stay that user's.
	server := mustStart(t, Options{Folder: folder})
	wantValues(t, server, map[string]string{"SELECT word FROM kept": "ordinary"})
	mustStop(t, server)
	startOwner(t, folder, other).stop(t)
}

func TestLongAndOddFolders(t *testing.T) {
	t.Parallel()
	for name, folder := range map[string]string{
		"longer than a socket's address": strings.Repeat("long/", 30),
		"with a comma":                   "one, two",
		"with an URL's characters":       `50% "a"&b=c+d?[x]'#`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mustStart(t, Options{Folder: filepath.Join(openFolder(t), folder), Volatile: true})
			if got := server.Folder(); !strings.HasPrefix(got, root) {
				t.Errorf("the data is in %s, want it in the folder asked for", got)
			}
			wantValues(t, server, map[string]string{"SHOW data_directory": server.data()})
			mustStop(t, server)
			if _, err := os.Stat(server.socket); server.socket != server.data() && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the socket's folder %s is still there after the stop: %v", server.socket, err)
			}
		})
	}
}

func TestCancelledStart(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	unfinished := filepath.Join(folder, "data.new")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for _, err := os.Stat(unfinished); ctx.Err() == nil && err != nil; _, err = os.Stat(unfinished) {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := Start(ctx, Options{Folder: folder, Volatile: true}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a start cancelled during initdb returns %v, want %v", err, context.Canceled)
	}
	if left := entries(folder); len(left) != 2 { // the lock and the log
		t.Errorf("the cancelled start left %v", left)
	}
	mustStart(t, Options{Folder: folder, Volatile: true})
}

func TestFailedStartShowsLog(t *testing.T) {
	t.Parallel()
	server := mustStart(t, Options{Folder: newFolder(t), Volatile: true})
	mustStop(t, server)
	settings := filepath.Join(server.data(), "postgresql.conf")
	testkit.NoError(t, os.WriteFile(settings, []byte("no_such_setting = 1\n"), 0o600))
	for range 2 { // the first one frees the folder
		_, err := Start(t.Context(), Options{Folder: server.Folder(), Volatile: true})
		wantError(t, "a start with an unknown setting", err, `unrecognized configuration parameter "no_such_setting"`)
	}
}

// beOwner is the process startOwner starts: it runs a server until its input ends.
func beOwner(folder string) error {
	server, err := Start(context.Background(), Options{Folder: folder})
	if err != nil {
		return err
	}
	fmt.Println(server.URL("postgres"))
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	return server.Stop()
}

// owner is another process with a server of its own.
type owner struct {
	cmd   *exec.Cmd
	input io.Closer
	url   string
}

func startOwner(t *testing.T, folder string, as *syscall.Credential) *owner {
	t.Helper()
	program, err := os.Executable()
	testkit.NoError(t, err)
	cmd := exec.Command(program)
	if as != nil { // the go command builds the test binary where only root gets to
		cmd.Path = filepath.Join(openFolder(t), "embedded.test")
		if output, err := exec.Command("cp", program, cmd.Path).CombinedOutput(); err != nil {
			t.Fatalf("copy the program: %v: %s", err, output)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), ownerFolder+"="+folder, "HOME="+folder)
	cmd.Stderr = os.Stderr
	input, inputErr := cmd.StdinPipe()
	output, outputErr := cmd.StdoutPipe()
	testkit.NoError(t, errors.Join(inputErr, outputErr, cmd.Start()))
	t.Cleanup(func() {
		_, _ = input.Close(), cmd.Wait() // both done already unless the test failed
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("the owning process did not start its server: %v", err)
	}
	return &owner{cmd: cmd, input: input, url: strings.TrimSpace(line)}
}

func (o *owner) kill(t *testing.T) {
	t.Helper()
	testkit.NoError(t, o.cmd.Process.Kill())
	_ = o.cmd.Wait() // says that it was killed
}

func (o *owner) stop(t *testing.T) {
	t.Helper()
	testkit.NoError(t, errors.Join(o.input.Close(), o.cmd.Wait()))
}

// newFolder has the mode 0700, openFolder lets everybody pass.
func newFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(root, "")
	testkit.NoError(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Errorf("remove the test's folder: %v", err)
		}
	})
	return folder
}

func openFolder(t *testing.T) string {
	t.Helper()
	folder := newFolder(t)
	testkit.NoError(t, os.Chmod(folder, 0o755))
	return folder
}

func mustStart(t *testing.T, options Options) *Server {
	t.Helper()
	server, err := Start(t.Context(), options)
	if err != nil {
		t.Fatalf("start in %s: %v", options.Folder, err)
	}
	t.Cleanup(func() { mustStop(t, server) })
	return server
}

func mustStop(t *testing.T, server *Server) {
	t.Helper()
	if err := server.Stop(); err != nil {
		t.Errorf("stop the server in %s: %v", server.Folder(), err)
	}
}

// query runs a statement and returns the text of its only value, if it has one.
func query(t *testing.T, url, statement string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	testkit.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), statement).Scan(&value); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", statement, err)
	}
	return value
}

func wantValues(t *testing.T, server *Server, want map[string]string) {
	t.Helper()
	for statement, value := range want {
		if got := query(t, server.URL("postgres"), statement); got != value {
			t.Errorf("%s: %q, want %q", statement, got, value)
		}
	}
}

func wantError(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	for _, part := range want {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s returns the error %v, want it to say %q", what, err, part)
		}
	}
}
