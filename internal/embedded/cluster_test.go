//go:build unix

package embedded

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestRecycledProcessID starts after a crash of the machine, when another program of the same user has PostgreSQL's process id.
func TestRecycledProcessID(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	server := mustStart(t, Options{Folder: folder, Volatile: true})
	query(t, server.URL("postgres"), "CREATE TABLE kept AS SELECT 'crashed' AS word")
	pidFile := filepath.Join(server.data(), "postmaster.pid")
	socketLock := filepath.Join(server.data(), socketName+".lock")
	content, err := os.ReadFile(pidFile)
	testkit.NoError(t, err)
	mustStop(t, server)

	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: server.user}
	testkit.NoError(t, stranger.Start())
	t.Cleanup(func() {
		_ = stranger.Process.Kill()
		_ = stranger.Wait()
	})
	_, rest, _ := bytes.Cut(content, []byte("\n"))
	content = append(fmt.Appendf(nil, "%d\n", stranger.Process.Pid), rest...)
	for _, path := range []string{pidFile, socketLock} {
		testkit.NoError(t, os.WriteFile(path, content, 0o600))
		if server.user != nil {
			testkit.NoError(t, own(path, server.user))
		}
	}
	testkit.NoError(t, os.Mkdir(filepath.Join(folder, "data.new"), 0o700))

	server = mustStart(t, Options{Folder: folder, Volatile: true})
	wantValues(t, server, map[string]string{"SELECT word FROM kept": "crashed"})
	if err := stranger.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the program that has the process id now was ended: %v", err)
	}
}
