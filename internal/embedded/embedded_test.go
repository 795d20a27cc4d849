//go:build unix

package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

// ownerFolder names the environment variable that turns this test binary into a process that owns a server, see startOwner.
const ownerFolder = "PARLEY_TEST_OWNER_FOLDER"

// root is where all tests' folders are. Unlike those of t.TempDir, its parents let every user pass.
var root string

func TestMain(m *testing.M) {
	if folder := os.Getenv(ownerFolder); folder != "" {
		if err := own(folder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(runTests(m))
}

// runTests also checks that the tests leave nothing behind.
func runTests(m *testing.M) (code int) {
	var err error
	if root, err = os.MkdirTemp("", "parley-embedded-test-"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(root) }()
	temporary := filepath.Join(root, "tmp")
	if err := errors.Join(os.Mkdir(temporary, 0o755), os.Chmod(root, 0o755), os.Chmod(temporary, 0o755), os.Setenv("TMPDIR", temporary)); err != nil {
		panic(err)
	}
	substitutes := entries("/var/lib/parley", "")

	code = m.Run()
	left := slices.Concat(entries(root, ""), entries(temporary, "parley-"), entries("/var/lib/parley", ""))
	for _, left := range left {
		if left != temporary && !slices.Contains(substitutes, left) {
			fmt.Printf("the tests left %s behind\n", left)
			code = 1
		}
	}
	processes, _ := os.ReadDir("/proc")
	for _, process := range processes {
		if pid, err := strconv.Atoi(process.Name()); err == nil && strings.Contains(commandLine(pid), root) {
			fmt.Printf("the tests left process %d running: %s\n", pid, commandLine(pid))
			code = 1
		}
	}
	return code
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(openFolder(t), "not", "there", "yet")

	began := time.Now()
	server := mustStart(t, Options{Folder: folder})
	t.Logf("first start: %s", time.Since(began))
	if server.Folder() != folder {
		t.Errorf("the data is in %s, want it in %s", server.Folder(), folder)
	}
	mustExec(t, server.URL("postgres"), "CREATE TABLE kept AS SELECT 'grüße' AS word")
	_, err := Start(t.Context(), Options{Folder: folder})
	wantError(t, "a second start while the first one runs", err, "another parley process uses "+server.Folder())

	want := map[string]string{
		"listen_addresses": "", "unix_socket_permissions": "0700", "server_encoding": "UTF8",
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
	}
	if diff := cmp.Diff(want, settings(t, server, want)); diff != "" {
		t.Errorf("settings of a durable server (-want +got):\n%s", diff)
	}
	if got := mustQuery(t, server, "SELECT upper('grüße')"); got != "GRÜßE" {
		t.Errorf("the upper case of grüße is %s, want GRÜßE: the locale knows ASCII only", got)
	}

	mustStop(t, server)
	mustStop(t, server)
	if _, err := pgx.Connect(t.Context(), server.URL("postgres")); err == nil {
		t.Error("the server responds after it was stopped")
	}

	began = time.Now()
	server = mustStart(t, Options{Folder: folder, Volatile: true})
	t.Logf("second start: %s", time.Since(began))
	if got := mustQuery(t, server, "SELECT word FROM kept"); got != "grüße" {
		t.Errorf("after a restart the table has %q, want %q", got, "grüße")
	}
	want = map[string]string{"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
	if diff := cmp.Diff(want, settings(t, server, want)); diff != "" {
		t.Errorf("settings of a volatile server (-want +got):\n%s", diff)
	}
}

// TestKilledOwner kills the process that started the server: PostgreSQL has to end, and must not hinder the next start.
func TestKilledOwner(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)

	first := startOwner(t, thisProgram(t), folder, nil)
	mustExec(t, first.url, "CREATE TABLE kept AS SELECT 'first' AS word")
	pid := postmaster(t, folder)
	first.kill(t)
	if runtime.GOOS == "linux" {
		for deadline := time.Now().Add(10 * time.Second); serves(pid, filepath.Join(folder, "data")); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("10 s after kill -9 of its owner, PostgreSQL (process %d) still runs", pid)
			}
		}
	}

	second := startOwner(t, thisProgram(t), folder, nil)
	mustExec(t, second.url, "INSERT INTO kept VALUES ('second')")
	second.kill(t)
	third := mustStart(t, Options{Folder: folder}) // at once: the second one's PostgreSQL is just shutting down
	if got := mustQuery(t, third, "SELECT string_agg(word, ' ' ORDER BY word) FROM kept"); got != "first second" {
		t.Errorf("after two kills the table has %q, want %q", got, "first second")
	}
}

func TestOrdinaryUser(t *testing.T) {
	t.Parallel()
	folder, program, uid := newFolder(t), thisProgram(t), uint32(os.Geteuid())
	var nobody *account
	if uid == 0 {
		found, err := user.Lookup("nobody")
		if err != nil {
			t.Fatalf("the user to run as: %v", err)
		}
		nobody = &account{uid: mustID(t, found.Uid), gid: mustID(t, found.Gid)}
		uid = nobody.uid
		if err := nobody.own(folder); err != nil {
			t.Fatal(err)
		}
		// The go command builds the test binary where only root gets to.
		program = filepath.Join(openFolder(t), "embedded.test")
		copyProgram(t, thisProgram(t), program)
	}

	owner := startOwner(t, program, folder, nobody)
	mustExec(t, owner.url, "CREATE TABLE kept AS SELECT 'ordinary' AS word")
	owner.stop(t)
	info, err := os.Stat(filepath.Join(folder, "data"))
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Sys().(*syscall.Stat_t).Uid; got != uid {
		t.Errorf("the data belongs to the user %d, want %d, who started the server", got, uid)
	}

	// For root this is another user's cluster, which has to stay that user's.
	server := mustStart(t, Options{Folder: folder})
	if got := mustQuery(t, server, "SELECT word FROM kept"); got != "ordinary" {
		t.Errorf("after a restart by this user the table has %q, want %q", got, "ordinary")
	}
	mustStop(t, server)
	owner = startOwner(t, program, folder, nobody)
	owner.stop(t)
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
			if got := mustQuery(t, server, "SHOW data_directory"); got != server.data() {
				t.Errorf("the data is in %s, want it in %s", got, server.data())
			}
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
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil && len(entries(folder, "initdb-")) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := Start(ctx, Options{Folder: folder, Volatile: true}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a start cancelled during initdb returns %v, want %v", err, context.Canceled)
	}
	if left := append(entries(folder, "initdb-"), entries(folder, "data")...); len(left) > 0 {
		t.Errorf("the cancelled start left %v", left)
	}
	mustStart(t, Options{Folder: folder, Volatile: true})
}

func TestFailedStartShowsLog(t *testing.T) {
	t.Parallel()
	server := mustStart(t, Options{Folder: newFolder(t), Volatile: true})
	mustStop(t, server)
	appendTo(t, filepath.Join(server.data(), "postgresql.conf"), "no_such_setting = 1\n")
	_, err := Start(t.Context(), Options{Folder: server.Folder(), Volatile: true})
	wantError(t, "a start with an unknown setting", err, `unrecognized configuration parameter "no_such_setting"`)
	_, err = Start(t.Context(), Options{Folder: server.Folder(), Volatile: true})
	wantError(t, "the same again, with the folder freed", err, `unrecognized configuration parameter "no_such_setting"`)
}

// own is the process startOwner starts: it runs a server until its input ends.
func own(folder string) error {
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

func startOwner(t *testing.T, program, folder string, as *account) *owner {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), ownerFolder+"="+folder, "HOME="+folder, "TMPDIR="+folder) // what the user may write to
	cmd.Stderr = os.Stderr
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as.uid, Gid: as.gid}}
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the owning process: %v", err)
	}
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
	if err := o.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill the owning process: %v", err)
	}
	_ = o.cmd.Wait() // says that it was killed
}

func (o *owner) stop(t *testing.T) {
	t.Helper()
	if err := errors.Join(o.input.Close(), o.cmd.Wait()); err != nil {
		t.Fatalf("the owning process did not stop its server: %v", err)
	}
}

// newFolder has the mode 0700, openFolder lets everybody pass.
func newFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp(root, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Errorf("remove the test's folder: %v", err)
		}
	})
	return resolve(folder)
}

func openFolder(t *testing.T) string {
	t.Helper()
	folder := newFolder(t)
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
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

func mustExec(t *testing.T, url, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func mustQuery(t *testing.T, server *Server, query string) (value string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("postgres"))
	if err != nil {
		t.Fatalf("connect to %s: %v", server.URL("postgres"), err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if err := conn.QueryRow(t.Context(), query).Scan(&value); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return value
}

func settings(t *testing.T, server *Server, names map[string]string) map[string]string {
	t.Helper()
	got := map[string]string{}
	for name := range names {
		got[name] = mustQuery(t, server, "SHOW "+name)
	}
	return got
}

func wantError(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	for _, part := range want {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s returns the error %v, want it to say %q", what, err, part)
		}
	}
}

// postmaster is the process id of the server that runs in the folder.
func postmaster(t *testing.T, folder string) int {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	return int(mustID(t, first))
}

func mustID(t *testing.T, text string) uint32 {
	t.Helper()
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(id)
}

func thisProgram(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(to, content, 0o700), os.Chmod(to, 0o755)); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(content, text...), 0o600); err != nil {
		t.Fatal(err)
	}
}
