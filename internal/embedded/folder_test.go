//go:build unix

package embedded

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestUnreachableFolder is about root alone: for everybody else PostgreSQL runs as the user who chose the folder.
func TestUnreachableFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as another user")
	}
	private := newFolder(t) // mode 0700, like root's home
	folder := filepath.Join(private, "checkout", "data")
	_, err := os.Stat("/var/lib/parley-dev")
	isNew := errors.Is(err, fs.ErrNotExist)

	var progress bytes.Buffer
	server := mustStart(t, Options{Folder: folder, Volatile: true, Progress: &progress})
	t.Cleanup(func() {
		mustStop(t, server)
		if err := os.RemoveAll(server.Folder()); err != nil {
			t.Errorf("remove the substitute folder: %v", err)
		}
		if isNew {
			_ = os.Remove("/var/lib/parley-dev") // fails if somebody else has begun to use it
		}
	})
	if !strings.HasPrefix(server.Folder(), "/var/lib/parley-dev/") {
		t.Errorf("the data of %s is in %s, want it below /var/lib/parley-dev", folder, server.Folder())
	}
	for _, part := range []string{folder, server.Folder()} {
		if !strings.Contains(progress.String(), part) {
			t.Errorf("the progress is %q, want it to name %s", progress.String(), part)
		}
	}
	query(t, server.URL("postgres"), "CREATE TABLE kept AS SELECT 'elsewhere' AS word")
	mustStop(t, server)

	again := mustStart(t, Options{Folder: folder, Volatile: true})
	wantValues(t, again, map[string]string{"SELECT word FROM kept": "elsewhere"})
	mustStop(t, again)

	link := filepath.Join(openFolder(t), "link")
	testkit.NoError(t, os.Symlink(private, link))
	linked := mustStart(t, Options{Folder: filepath.Join(link, "checkout", "data"), Volatile: true})
	wantValues(t, linked, map[string]string{"SELECT word FROM kept": "elsewhere"})
	mustStop(t, linked)
	info, err := os.Stat(private)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the private folder has the mode %v now (%v), want it untouched", info.Mode(), err)
	}
}
