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
	"net/url"
	"os"
	"path/filepath"
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
	// If the process runs as root, PostgreSQL runs as another user. If that user has no access to Folder (a checkout
	// below root's home), the data is stored in a folder of /var/lib/parley instead, always the same one for the same
	// Folder. See Server.Folder.
	Folder string

	// Volatile makes PostgreSQL faster, but a power failure may destroy the data. It is for tests and demos.
	Volatile bool

	// Progress receives lines for the user: what is downloaded, where the data is stored. Nil prints nothing.
	Progress io.Writer
}

// Server is a running PostgreSQL that belongs to this process.
type Server struct {
	folder   string
	lock     *os.File
	socket   string // the folder of the Unix socket
	postgres *child
	stop     func() error
}

const (
	logName = "postgres.log"

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
	return start(ctx, options, machine(ctx))
}

func start(ctx context.Context, options Options, source source) (*Server, error) {
	progress := options.Progress
	if progress == nil {
		progress = io.Discard
	}
	folder, user, lock, err := lockFolder(options.Folder, progress)
	if err != nil {
		return nil, err
	}

	s := &Server{folder: folder, lock: lock}
	s.stop = sync.OnceValue(s.release)
	if err := s.start(ctx, options.Volatile, user, source, progress); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, volatile bool, user *account, source source, progress io.Writer) error {
	if err := stopLeftover(ctx, s.data(), user, progress); err != nil {
		return err
	}
	version, err := clusterVersion(s.data())
	if err != nil {
		return err
	}
	binaries, err := source.find(ctx, version, user, progress)
	if err != nil {
		return err
	}
	if version == 0 {
		if err := createCluster(ctx, binaries, s.data(), user); err != nil {
			return err
		}
	}
	if err := s.launch(ctx, binaries, volatile, user); err != nil {
		return fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("start PostgreSQL: %w; the end of %s:\n%s", err, s.logPath(), s.lastLog())
	}
	return nil
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

// Stop disconnects the clients, shuts PostgreSQL down and unlocks the folder. If PostgreSQL does not stop in time, Stop
// kills it; the data is still safe, unless it is volatile. Further calls return the result of the first one.
func (s *Server) Stop() error { return s.stop() }

func (s *Server) release() error {
	var problems []error
	if s.postgres != nil {
		err := shutDown(context.Background(), s.postgres.cmd.Process, s.data())
		if err == nil {
			<-s.postgres.ended
		}
		problems = append(problems, err)
	}
	if s.socket != "" && s.socket != s.data() {
		problems = append(problems, os.RemoveAll(s.socket))
	}
	return errors.Join(append(problems, unlockFile(s.lock))...)
}

func (s *Server) data() string    { return filepath.Join(s.folder, "data") }
func (s *Server) logPath() string { return filepath.Join(s.folder, logName) }

func (s *Server) launch(ctx context.Context, binaries string, volatile bool, user *account) error {
	var err error
	if s.socket, err = socketFolder(s.data(), user); err != nil {
		return err
	}
	log, err := openFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, user)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // PostgreSQL has its own handle

	settings := []string{
		"listen_addresses=", // only the Unix socket accepts connections
		"unix_socket_permissions=0700",
		"port=" + port,
		"max_connections=200",
		"shared_buffers=256MB",
		"log_destination=stderr", // some distributions' initdb writes other choices into postgresql.conf
		"logging_collector=off",
	}
	if volatile {
		settings = append(settings, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	arguments := []string{"-D", s.data(), "-k", s.socket}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	// ctx limits only the start. The server runs longer.
	postgres := command(context.WithoutCancel(ctx), user, s.data(), filepath.Join(binaries, "postgres"), arguments...)
	postgres.Stdout, postgres.Stderr = log, log
	s.postgres, err = launch(postgres)
	return err
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
			return fmt.Errorf("it ended with %s", s.postgres.cmd.ProcessState)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// socketFolder returns the data folder, which only PostgreSQL's user (and root) can enter. If its path is too long for
// the address of a socket, or contains a comma, which separates hosts in a connection string, it returns a new
// temporary folder.
func socketFolder(data string, user *account) (string, error) {
	var address syscall.RawSockaddrUnix
	if len(filepath.Join(data, socketName)) < len(address.Path) && !strings.Contains(data, ",") {
		return data, nil
	}
	folder, err := os.MkdirTemp("/tmp", "parley-")
	if err != nil {
		return "", err
	}
	return folder, user.own(folder)
}

func (s *Server) lastLog() []byte {
	const most = 2000
	content, err := os.ReadFile(s.logPath())
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(content[max(0, len(content)-most):])
}
