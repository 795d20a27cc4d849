package development

import (
	"errors"
	"os"
	"testing"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestAuthorizerKey: parley dev creates a key once, for its owner only.
func TestAuthorizerKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first, err := ownKey(data, authorizerKey)
	testkit.NoError(t, err)
	if info, err := os.Stat(first.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file is %v, %v, want one for the owner only", info.Mode(), err)
	}
	channels := demoChannels
	channels.AuthorizerKey = first
	config, err := channels.Config(devnet.Payee)
	if second, secondErr := ownKey(data, authorizerKey); second != first || errors.Join(err, secondErr) != nil || config.Authorizer == nil {
		t.Errorf("the key is %v, then %v, with the settings %+v, %v, %v", first, second, config, err, secondErr)
	}
}
