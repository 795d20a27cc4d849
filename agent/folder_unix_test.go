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

// TestSharedFolder: a wallet is not in a folder that other users may write to.
func TestSharedFolder(t *testing.T) {
	t.Parallel()
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o755: true, 0o777: false, 0o777 | os.ModeSticky: false, 0o770: false} {
		folder := filepath.Join(t.TempDir(), "wallet")
		testkit.NoError(t, agent.CheckFolder(folder)) // it is made for its owner only
		testkit.NoError(t, os.Mkdir(folder, 0o700))
		testkit.NoError(t, os.Chmod(folder, mode))
		if err := agent.CheckFolder(folder); (err == nil) != good || !good && !strings.Contains(err.Error(), "chmod go-w "+folder) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
