package development

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-chat/parley/internal/devnet"
)

// TestAuthorizerKey: parley dev creates a key once, for its owner only.
func TestAuthorizerKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var keys []string
	for range 2 {
		path, err := ownKey(data, authorizerKey)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path) //nolint:gosec // the test's own file
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key's file is %v, %v, want one for the owner only", info.Mode(), err)
		}
		keys = append(keys, string(content))
	}
	settings := demoChannels
	settings.AuthorizerKeyFile = filepath.Join(data, "authorizer-key")
	if config, err := settings.Config(devnet.Payee); keys[0] != keys[1] || err != nil || config.Authorizer == nil {
		t.Errorf("the key is %q, then %q, with the settings %+v, %v", keys[0], keys[1], config, err)
	}
}
