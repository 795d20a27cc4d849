//go:build unix

// Package embedded runs a private PostgreSQL for `parley dev`, `parley demo` and the tests. It uses the PostgreSQL
// installed on the machine, and downloads one if there is none. PostgreSQL listens on no TCP port, and ends with the
// process that started it.
package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
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
	// stored in a folder of /var/lib/parley instead, always the same one for the same Folder. See Server.Folder.
	Folder string

	// Volatile makes PostgreSQL faster, but a power failure may destroy the data. It is for tests and demos.
	Volatile bool

	// Progress receives lines for the user: what is downloaded, where the data is stored. Nil prints nothing.
	Progress io.Writer
}

// Server is a running PostgreSQL that belongs to this process.
type Server struct {
	folder   string
	user     *syscall.Credential
	lock     *os.File
	socket   string // the folder of the Unix socket
	postgres *child
	stop     func() error
}

const (
	// socketName is defined by PostgreSQL. It contains the port even if nothing listens on a port.
	socketName = ".s.PGSQL." + port
	port       = "5432"

	startPatience = 30 * time.Second // enough for the recovery after a crash
)

// Start creates the cluster if the folder has none, and returns when it accepts connections. The superuser is postgres,
// without a password, because only the user of this process has access to the socket. The only databases are
// PostgreSQL's own; the caller creates others.
//
// PostgreSQL stops with Stop, and also if this process dies (on Linux at once, elsewhere at the next Start).
func Start(ctx context.Context, options Options) (*Server, error) {
	return start(ctx, options, machine())
}

func start(ctx context.Context, options Options, source source) (*Server, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	s := &Server{}
	var err error
	if s.folder, s.user, err = choose(options.Folder, options.Progress); err != nil {
		return nil, err
	}
	if s.lock, err = s.takeLock(ctx); err != nil {
		return nil, err
	}
	s.stop = sync.OnceValue(s.release)
	if err := s.start(ctx, options, source); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

// takeLock locks the folder. PostgreSQL's processes inherit the lock, so it is free when all of them have ended. takeLock stops a
// PostgreSQL whose owner was killed, and waits.
func (s *Server) takeLock(ctx context.Context) (*os.File, error) {
	path := filepath.Join(s.folder, "lock")
	try := func() (*os.File, error) { return lockFile(path, syscall.LOCK_EX|syscall.LOCK_NB) }
	lock, err := try()
	for deadline := time.Now().Add(startPatience); errors.Is(err, syscall.EWOULDBLOCK); lock, err = try() {
		if owner := processIn(path); owner == 0 || syscall.Kill(owner, 0) != syscall.ESRCH || time.Now().After(deadline) {
			return nil, fmt.Errorf("another parley process uses %s, or its PostgreSQL does not end: stop it, or choose another folder", s.folder)
		}
		if postgres := processIn(filepath.Join(s.data(), "postmaster.pid")); postgres > 1 {
			_ = syscall.Kill(postgres, syscall.SIGINT)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err != nil {
		return nil, err
	}
	if err = lock.Truncate(0); err == nil {
		_, err = fmt.Fprintln(lock, os.Getpid())
	}
	if err != nil {
		return nil, errors.Join(err, unlockFile(lock))
	}
	return lock, nil
}

// processIn returns the process id at the beginning of a file, or 0.
func processIn(path string) (id int) {
	content, _ := os.ReadFile(path)
	_, _ = fmt.Sscan(string(content), &id)
	return id
}

func (s *Server) start(ctx context.Context, options Options, source source) error {
	version, _ := os.ReadFile(filepath.Join(s.data(), "PG_VERSION")) // fails if there is no cluster
	binaries, err := source.find(ctx, strings.TrimSpace(string(version)), s.user, options.Progress)
	if err != nil {
		return err
	}
	if len(version) == 0 {
		if err := s.createCluster(ctx, binaries); err != nil {
			return err
		}
	}
	if s.socket, err = socketFolder(s.data(), s.user); err != nil {
		return err
	}
	// The lock shows that no process of an earlier PostgreSQL is left. A process id in these files may be that of another program now.
	for _, name := range []string{"postmaster.pid", socketName, socketName + ".lock"} {
		if err := os.Remove(filepath.Join(s.data(), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	arguments := []string{"-D", s.data(), "-k", s.socket}
	settings := []string{
		"listen_addresses=", // only the Unix socket accepts connections
		"unix_socket_permissions=0700", "port=" + port, "max_connections=200", "shared_buffers=256MB",
		"log_destination=stderr", "logging_collector=off", // some distributions' initdb writes other choices into postgresql.conf
	}
	if options.Volatile {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	log, err := os.OpenFile(filepath.Join(s.folder, "postgres.log"), os.O_CREATE|os.O_RDWR|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // PostgreSQL has its own handle
	// ctx limits only the start. The server runs longer.
	if s.postgres, err = s.launch(context.WithoutCancel(ctx), log, filepath.Join(binaries, "postgres"), arguments...); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		content, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w; the end of %s:\n%s", err, log.Name(), bytes.TrimSpace(content[max(0, len(content)-2000):]))
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("it accepts no connection after %s", startPatience))
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.postgres.ended:
			return fmt.Errorf("it ended: %w", s.postgres.err)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// createCluster works in a folder next to the final one and renames it, so that a killed process never leaves an
// incomplete cluster.
func (s *Server) createCluster(ctx context.Context, binaries string) error {
	folder := s.data() + ".new"
	defer func() { _ = os.RemoveAll(folder) }() // after success the folder no longer exists
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700), own(folder, s.user)); err != nil {
		return err
	}
	// Everyone who can open the socket is trusted. Only PostgreSQL's user and root can open it, see socketFolder.
	arguments := []string{"-D", folder, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-instructions"}
	if runtime.GOOS == "darwin" { // macOS has no C.UTF-8; this sorts the same way
		arguments = append(arguments, "--locale=en_US.UTF-8", "--lc-collate=C")
	} else {
		arguments = append(arguments, "--locale=C.UTF-8")
	}
	var output bytes.Buffer
	initdb, err := s.launch(ctx, &output, filepath.Join(binaries, "initdb"), arguments...)
	if err != nil {
		return err
	}
	<-initdb.ended
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case initdb.err != nil:
		return fmt.Errorf("initdb: %w: %s", initdb.err, bytes.TrimSpace(output.Bytes()))
	}
	return os.Rename(folder, s.data())
}

// URL returns the address of one of the server's databases, for pgx and for psql. It sets everything that an
// environment variable (PGPORT, PGSSLMODE) could change.
func (s *Server) URL(database string) string {
	address := url.URL{
		Scheme: "postgres",
		User:   url.User("postgres"),
		Path:   "/" + database,
		// psql does not decode + as a space.
		RawQuery: "host=" + strings.ReplaceAll(url.QueryEscape(s.socket), "+", "%20") + "&port=" + port + "&sslmode=disable",
	}
	return address.String()
}

// Folder returns where the data is stored: Options.Folder, or the folder used instead.
func (s *Server) Folder() string { return s.folder }

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// Stop disconnects the clients, shuts PostgreSQL down and unlocks the folder. If PostgreSQL does not stop in time, Stop
// kills it; the data is still safe, unless it is volatile. Further calls return the result of the first one.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) release() (err error) {
	if s.postgres != nil {
		err = s.postgres.shutDown()
	}
	if s.socket != "" && s.socket != s.data() {
		err = errors.Join(err, os.RemoveAll(s.socket))
	}
	return errors.Join(err, unlockFile(s.lock))
}

// socketFolder returns the data folder, which only PostgreSQL's user (and root) can enter. If its path is too long for
// the address of a socket, or contains a comma, which separates hosts in a connection string, it returns a new
// temporary folder.
func socketFolder(data string, user *syscall.Credential) (string, error) {
	var address syscall.RawSockaddrUnix
	if len(filepath.Join(data, socketName)) < len(address.Path) && !strings.Contains(data, ",") {
		return data, nil
	}
	folder, err := os.MkdirTemp("/tmp", "parley-")
	if err != nil {
		return "", err
	}
	return folder, own(folder, user)
}
