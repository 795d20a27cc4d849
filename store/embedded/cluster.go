//go:build unix

package embedded

import (
	"bytes"
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

// stopLeftover stops the PostgreSQL of an earlier process that was killed, if it still runs or is shutting down at this moment, and
// removes what would hinder the next one. The caller holds the folder's lock, so nobody else wants that server.
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
		// Opened before the check: from here on the handle cannot come to mean another process.
		process, err := os.FindProcess(pid)
		if err == nil && serves(pid, data) {
			fmt.Fprintf(progress, "stopping the PostgreSQL left over in %s\n", data)
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if err := shutDown(ctx, process, ended(ctx, pid, data)); err != nil {
				return err
			}
		}
	}

	// If the file still exists, PostgreSQL died without removing it, and would refuse to start if some other program has got that
	// process id since. Its parent's process id it knows to be stale; and unlike without the file, it still makes sure that no process
	// of the old server is using the data.
	if err := postmasterPID.Truncate(0); err != nil {
		return err
	}
	_, err = postmasterPID.WriteAt(append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...), 0)
	return err
}

// serves tells whether the process is the PostgreSQL of the data folder.
func serves(pid int, data string) bool {
	line := commandLine(pid)
	return strings.Contains(line, "postgres") && strings.Contains(line+" ", " -D "+data+" ")
}

// clusterVersion is the major version that created the cluster, 0 if there is none.
func clusterVersion(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("version of the cluster in %s: %w", data, err)
	}
	return version, nil
}

// createCluster works in a folder beside the final one and renames it, so that a kill never leaves half a cluster.
func createCluster(ctx context.Context, binaries, data string, user *account) error {
	const prefix = "initdb-"
	if err := removeAll(entries(filepath.Dir(data), prefix)); err != nil {
		return err
	}
	folder, err := os.MkdirTemp(filepath.Dir(data), prefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // nothing is there any more if all went well
	if err := user.own(folder); err != nil {
		return err
	}

	// Whoever can open the socket is trusted: only PostgreSQL's user and root can, see socketFolder.
	arguments := []string{"-D", folder, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-instructions"}
	if runtime.GOOS == "darwin" { // has no C.UTF-8; this sorts the same way
		arguments = append(arguments, "--locale=en_US.UTF-8", "--lc-collate=C")
	} else {
		arguments = append(arguments, "--locale=C.UTF-8")
	}
	var output bytes.Buffer
	initdb := command(ctx, user, folder, filepath.Join(binaries, "initdb"), arguments...)
	initdb.Stdout, initdb.Stderr = &output, &output
	process, err := launch(initdb)
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	<-process.ended
	if ctx.Err() != nil {
		return fmt.Errorf("initdb: %w", context.Cause(ctx))
	}
	if process.err != nil {
		return fmt.Errorf("initdb: %w:\n%s", process.err, bytes.TrimSpace(output.Bytes()))
	}
	return os.Rename(folder, data)
}
