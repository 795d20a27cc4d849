//go:build unix

package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestSharedFolder: a wallet is not in a folder that other users may write to or own, nor below one.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	const stranger = 54321
	for name, test := range map[string]struct {
		parent, wallet os.FileMode // 0: the folder does not exist
		owner, group   int         // of the wallet's folder, or of its parent if that does not exist
		says           string
	}{
		"a folder of the user":               {0o755, 0o700, 0, 0, ""},
		"a folder that others may read":      {0o755, 0o755, 0, 0, ""},
		"a folder of the user in /tmp":       {0o777 | os.ModeSticky, 0o700, 0, 0, ""},
		"a new folder":                       {0o755, 0, 0, 0, ""},
		"a new folder in /tmp":               {0o777 | os.ModeSticky, 0, 0, 0, ""},
		"everybody writes":                   {0o755, 0o777, 0, 0, "chmod go-w"},
		"everybody writes, sticky":           {0o755, 0o777 | os.ModeSticky, 0, 0, "chmod go-w"},
		"everybody writes above":             {0o777, 0o700, 0, 0, "chmod go-w"},
		"everybody writes above, new folder": {0o777, 0, 0, 0, "chmod go-w"},
		"a group writes":                     {0o755, 0o770, 0, stranger, "chmod go-w"},
		"a stranger's folder in /tmp":        {0o777 | os.ModeSticky, 0o700, stranger, stranger, "owned by another user"},
		"a volume of a container for root":   {0o755, 0o775, stranger, stranger, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.owner+test.group > 0 && os.Geteuid() != 0 {
				t.Skip("only root can give a folder to another user")
			}
			parent := filepath.Join(t.TempDir(), "parent")
			wallet := filepath.Join(parent, "wallet")
			made := []struct {
				path string
				mode os.FileMode
			}{{parent, test.parent}, {wallet, test.wallet}}
			for _, folder := range made {
				if folder.mode == 0 {
					continue
				}
				testkit.NoError(t, os.Mkdir(folder.path, 0o700))
				testkit.NoError(t, os.Chmod(folder.path, folder.mode))
			}
			if test.owner+test.group > 0 {
				testkit.NoError(t, os.Chown(wallet, test.owner, test.group))
			}
			err := agent.CheckFolder(wallet)
			if test.says == "" && err != nil {
				t.Error(err)
			}
			if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "PARLEY_HOME")) {
				t.Errorf("%v, want an error with %q and a remedy", err, test.says)
			}
		})
	}
}
