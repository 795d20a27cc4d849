//go:build unix

package embedded

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// stopLeftover stops the PostgreSQL of an earlier process that was killed, if it still runs or is shutting down, and
// removes files that would block the next start. The caller holds the lock of the folder, so no other process uses that
// server.
func stopLeftover(ctx context.Context, data string, user *account, progress io.Writer) error {
	file, err := openFile(filepath.Join(data, "postmaster.pid"), os.O_RDWR, user)
	if err == nil {
		defer func() { _ = file.Close() }()
		err = stopNamedIn(ctx, file, data, progress)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("stop the PostgreSQL left over in %s: %w", data, err)
	}
	for _, name := range []string{socketName, socketName + ".lock"} {
		if err := os.Remove(filepath.Join(data, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func stopNamedIn(ctx context.Context, postmasterPID *os.File, data string, progress io.Writer) error {
	content, err := io.ReadAll(postmasterPID)
	if err != nil {
		return err
	}
	first, rest, _ := bytes.Cut(content, []byte("\n"))
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(first))); err == nil && pid > 1 {
		// Find the process before the check, so that the handle cannot refer to another process afterwards.
		process, err := os.FindProcess(pid)
		if err == nil && serves(pid, data) {
			fmt.Fprintf(progress, "stopping the PostgreSQL left over in %s\n", data)
			if err := shutDown(ctx, process, data); err != nil {
				return err
			}
		}
	}

	// If the file still exists, PostgreSQL ended without removing it. It would refuse to start if another program now
	// has that process id. So write the id of this process, the parent of the next PostgreSQL, which PostgreSQL treats
	// as stale. Do not remove the file: with the file, PostgreSQL still checks that no process of the old server uses
	// the data.
	if err := postmasterPID.Truncate(0); err != nil {
		return err
	}
	_, err = postmasterPID.WriteAt(append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...), 0)
	return err
}

// clusterVersion returns the major version that created the cluster, or 0 if there is none.
func clusterVersion(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	version, parseErr := strconv.Atoi(strings.TrimSpace(string(content)))
	if err = cmp.Or(err, parseErr); err != nil {
		return 0, fmt.Errorf("version of the cluster in %s: %w", data, err)
	}
	return version, nil
}

// createCluster works in a folder next to the final one and renames it, so that a killed process never leaves an
// incomplete cluster.
func createCluster(ctx context.Context, binaries, data string, user *account) error {
	folder := data + ".new"
	defer func() { _ = os.RemoveAll(folder) }() // after success the folder no longer exists
	if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o700), user.own(folder)); err != nil {
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
	initdb := command(ctx, user, folder, filepath.Join(binaries, "initdb"), arguments...)
	initdb.Stdout, initdb.Stderr = &output, &output
	process, err := launch(initdb)
	if err == nil {
		<-process.ended
		err = process.err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(output.Bytes()))
	}
	return os.Rename(folder, data)
}
