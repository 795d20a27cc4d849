//go:build unix

package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnreachableFolder is about root alone: for everybody else PostgreSQL runs as the user who chose the folder.
func TestUnreachableFolder(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs PostgreSQL as another user; TestReachable checks the decision for everybody")
	}
	private := newFolder(t) // mode 0700, like root's home
	folder := filepath.Join(private, "checkout", "data")
	_, err := os.Stat("/var/lib/parley")
	isNew := errors.Is(err, fs.ErrNotExist)

	var progress bytes.Buffer
	server := mustStart(t, Options{Folder: folder, Volatile: true, Progress: &progress})
	t.Cleanup(func() {
		mustStop(t, server)
		if err := os.RemoveAll(server.Folder()); err != nil {
			t.Errorf("remove the substitute folder: %v", err)
		}
		if isNew {
			_ = os.Remove("/var/lib/parley") // fails if somebody else has begun to use it
		}
	})
	if !strings.HasPrefix(server.Folder(), "/var/lib/parley/") {
		t.Errorf("the data of %s is in %s, want it below /var/lib/parley", folder, server.Folder())
	}
	for _, part := range []string{folder, server.Folder()} {
		if !strings.Contains(progress.String(), part) {
			t.Errorf("the progress is %q, want it to name %s", progress.String(), part)
		}
	}
	mustExec(t, server.URL("postgres"), "CREATE TABLE kept AS SELECT 'elsewhere' AS word")
	mustStop(t, server)

	again := mustStart(t, Options{Folder: folder, Volatile: true})
	if got := mustQuery(t, again, "SELECT word FROM kept"); got != "elsewhere" {
		t.Errorf("after a restart the table has %q, want %q", got, "elsewhere")
	}
	mustStop(t, again)
	info, err := os.Stat(private)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the private folder has the mode %v now (%v), want it untouched", info.Mode(), err)
	}
}

func TestReachable(t *testing.T) {
	t.Parallel()
	base := newFolder(t)
	owner := account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	if err := os.Lchown(base, int(owner.uid), int(owner.gid)); err != nil {
		t.Fatal(err)
	}
	group := account{uid: owner.uid + 1, gid: owner.gid}
	other := account{uid: owner.uid + 1, gid: owner.gid + 1}
	for _, c := range []struct {
		mode fs.FileMode
		who  string
		as   account
		want bool
	}{
		{0o700, "its owner", owner, true},
		{0o077, "its owner", owner, false},
		{0o700, "its group", group, false},
		{0o710, "its group", group, true},
		{0o701, "its group", group, false},
		{0o710, "others", other, false},
		{0o701, "others", other, true},
	} {
		t.Run(fmt.Sprintf("%o for %s", c.mode, c.who), func(t *testing.T) {
			if err := os.Chmod(base, c.mode); err != nil {
				t.Fatal(err)
			}
			if got := reachable(filepath.Join(base, "missing", "folder"), &c.as); got != c.want {
				t.Errorf("reachable: %t, want %t", got, c.want)
			}
		})
	}
	if err := os.Chmod(base, 0o700); err != nil {
		t.Fatal(err)
	}
}
