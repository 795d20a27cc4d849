//go:build unix

// Package embedded runs a private PostgreSQL for `parley dev`, `parley demo` and the tests. It uses the PostgreSQL
// installed on the machine, and downloads one if there is none. PostgreSQL listens on no TCP port, and ends with the
// process that started it.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options say where the cluster is stored and how durable its data is.
type Options struct {
	// Folder holds the cluster. Start creates it if it is missing, and the data survives restarts. Only one process can
	// use it at a time.
	//
	// If the process runs as root, PostgreSQL runs as the owner of Folder. Root's own Folder gets the owner postgres, or
	// nobody if there is no postgres. If this user has no access to Folder (a checkout below root's home), the data is
	// stored in a folder of /var/lib/parley-dev instead, always the same one for the same Folder. See Server.Folder.
	Folder string

	// Volatile makes PostgreSQL faster, but a power failure may destroy the data. It is for tests and demos.
	Volatile bool

	// Progress receives lines for the user: what is downloaded, where the data is stored. Nil prints nothing.
	Progress io.Writer
}

// Server is a running PostgreSQL that belongs to this process.
type Server struct {
	folder string
	user   *syscall.Credential // nil: the user of this process
	log    *os.File
	socket string         // the folder of the Unix socket
	undo   []func() error // what Stop does, the last one first
}

const (
	port       = "5432"
	socketName = ".s.PGSQL." + port // PostgreSQL's choice, even if nothing listens on a port
	patience   = 30 * time.Second   // enough for a shutdown, and for the recovery after a crash
)

// Start creates the cluster if the folder has none, and returns when it accepts connections. The superuser is postgres,
// without a password, because only the user of this process has access to the socket. The only databases are
// PostgreSQL's own; the caller creates others.
//
// PostgreSQL stops with Stop, and also at once if this process dies.
func Start(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, machine())
}

func start(ctx context.Context, options Options, source source) (*Server, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	s := &Server{}
	if err := s.start(ctx, options, source); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, options Options, source source) (err error) {
	if s.folder, s.user, err = choose(options.Folder, options.Progress); err != nil {
		return err
	}
	if err := s.takeFolder(ctx); err != nil {
		return err
	}
	version, _ := os.ReadFile(filepath.Join(s.data(), "PG_VERSION")) // fails if there is no cluster
	binaries, err := source.find(ctx, strings.TrimSpace(string(version)), s.user, options.Progress)
	if err != nil {
		return err
	}
	if len(version) == 0 {
		err = s.createCluster(ctx, binaries)
	}
	if err == nil {
		err = s.run(ctx, binaries, options.Volatile)
	}
	if err != nil {
		content, _ := os.ReadFile(s.log.Name())
		return fmt.Errorf("%w; the end of %s:\n%s", err, s.log.Name(), content[max(0, len(content)-2000):])
	}
	return nil
}

// createCluster works in another folder and renames it, so that a killed process never leaves an incomplete cluster.
func (s *Server) createCluster(ctx context.Context, binaries string) error {
	folder := s.data() + ".new"
	_ = os.RemoveAll(folder)                    // if it fails, initdb says what is there
	defer func() { _ = os.RemoveAll(folder) }() // after success it no longer exists
	locale := []string{"--locale=C.UTF-8"}
	if runtime.GOOS == "darwin" { // macOS has no C.UTF-8; this sorts the same way
		locale = []string{"--locale=en_US.UTF-8", "--lc-collate=C"}
	}
	// Everyone who can open the socket is trusted. Only PostgreSQL's user and root can open it, see chooseSocket.
	if err := <-s.launch(ctx, filepath.Join(binaries, "initdb"), append(locale,
		"-D", folder, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-instructions")...); err != nil {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("initdb: %w", err))
	}
	return os.Rename(folder, s.data())
}

// run starts PostgreSQL, and returns when it accepts connections.
func (s *Server) run(ctx context.Context, binaries string, volatile bool) error {
	if err := s.chooseSocket(ctx); err != nil {
		return err
	}
	// The lock shows that no earlier PostgreSQL is left. The process id in these files may be that of another program now.
	inData := func(name string) string { return filepath.Join(s.data(), name) }
	if err := errors.Join(os.RemoveAll(inData("postmaster.pid")), os.RemoveAll(inData(socketName+".lock"))); err != nil {
		return err
	}
	arguments := []string{
		"-D", s.data(), "-k", s.socket, "--unix_socket_permissions=0700", "--port=" + port,
		"--listen_addresses=", // only the Unix socket accepts connections
		"--max_connections=200", "--shared_buffers=256MB",
		"--log_destination=stderr", "--logging_collector=off", // some distributions' initdb writes other choices into postgresql.conf
	}
	if volatile {
		arguments = append(arguments, "--fsync=off", "--synchronous_commit=off", "--full_page_writes=off")
	}
	ended := s.launch(context.WithoutCancel(ctx), filepath.Join(binaries, "postgres"), arguments...) // ctx limits only the start
	return retry(ctx, func(ctx context.Context) (again bool, err error) {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return false, conn.Close(ctx)
		}
		select {
		case err := <-ended:
			return false, fmt.Errorf("it ended: %w", err)
		default:
			return true, err
		}
	})
}

// chooseSocket chooses the data folder, which only PostgreSQL's user (and root) can enter, or a temporary folder of that
// user, if the path is too long for a socket, or contains a comma, which separates hosts in a connection string.
func (s *Server) chooseSocket(ctx context.Context) error {
	s.socket = s.data()
	if len(s.data()+"/"+socketName) < len(syscall.RawSockaddrUnix{}.Path) && !strings.Contains(s.data(), ",") {
		return nil
	}
	folder, err := command(ctx, s.user, "mktemp", "-d", "/tmp/parley-XXXXXXXX").Output()
	s.socket = strings.TrimSpace(string(folder))
	s.undo = append(s.undo, func() error { return os.RemoveAll(s.socket) })
	return err
}

// retry calls try until it has a result, or ctx ends, or the patience.
func retry(ctx context.Context, try func(context.Context) (again bool, err error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no success after %s", patience))
	defer cancel()
	for {
		again, err := try(ctx)
		if !again {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// command prepares a program that runs as the user (nil: the user of this process), in a folder that every user can enter.
func command(ctx context.Context, user *syscall.Credential, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = "/"
	// PGPORT, PGDATA and others would change what PostgreSQL does, and a locale may not be installed.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	return cmd
}

// guarded is a shell script that becomes the program of its arguments. The guard, a process in the background that is no
// child of the program, sends it a SIGINT if handle 3, a pipe from this process, ends without a line: this process died.
const guarded = `( (read -r line || kill -INT $$) <&3 >/dev/null 2>&1 & ); exec "$@" 3<&-`

// launch starts a program in its own process group: Ctrl-C in the terminal does not reach it, so this process decides when
// it stops. That is at the end of ctx or with Stop, by SIGINT: initdb cleans up, and PostgreSQL disconnects the clients and
// writes everything to the data files. If that takes too long it is killed. The channel receives the result and is closed.
func (s *Server) launch(ctx context.Context, program string, arguments ...string) <-chan error {
	ctx, stop := context.WithCancel(ctx)
	cmd := command(ctx, s.user, "sh", slices.Concat([]string{"-c", guarded, "sh", program}, arguments)...)
	guard, line, err := os.Pipe()
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.log, s.log, []*os.File{guard}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = patience
	ended := make(chan error, 1)
	go func() {
		if err == nil {
			err = cmd.Run()
			_, _ = line.WriteString("\n") // fails if the guard was killed
			_ = errors.Join(line.Close(), guard.Close())
		}
		ended <- err
		close(ended)
	}()
	s.undo = append(s.undo, func() error {
		stop()
		for range ended { // until it is closed
		}
		return nil
	})
	return ended
}

// URL returns the address of one of the server's databases, for pgx and for psql. It sets everything that an
// environment variable (PGPORT, PGSSLMODE) could change.
func (s *Server) URL(database string) string {
	socket := strings.ReplaceAll(url.QueryEscape(s.socket), "+", "%20") // psql does not decode + as a space
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%s&sslmode=disable", url.PathEscape(database), socket, port)
}

// Folder returns where the data is stored: Options.Folder, or the folder used instead.
func (s *Server) Folder() string { return s.folder }

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// Stop disconnects the clients, shuts PostgreSQL down and unlocks the folder. If PostgreSQL does not stop in time, Stop
// kills it; the data is still safe, unless it is volatile. Further calls do nothing.
func (s *Server) Stop() (err error) {
	for _, undo := range slices.Backward(s.undo) {
		err = errors.Join(err, undo())
	}
	s.undo = nil
	return err
}
