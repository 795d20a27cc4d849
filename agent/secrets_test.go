package agent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestSecrets: every place returns what it got, also after it is opened again, and says what it does not have.
func TestSecrets(t *testing.T) { //nolint:paralleltest // the library's mock is global
	keyring.MockInit()
	for _, place := range []string{agent.PlaceKeyring, agent.PlaceEncrypted, agent.PlaceFile} {
		folder := t.TempDir()
		open := func() agent.Secrets {
			t.Helper()
			secrets, err := agent.OpenSecrets(place, folder, func() (string, error) { return "correct horse", nil })
			if err != nil || secrets.Place() != place {
				t.Fatalf("%s: %v", place, err)
			}
			return secrets
		}
		testkit.NoError(t, errors.Join(open().Save("a", "first secret"), open().Save("b", "second"), open().Save("a", "third secret")))
		if value, err := open().Load("a"); err != nil || value != "third secret" {
			t.Errorf("%s: %q, %v, want the newest value", place, value, err)
		}
		if value, err := open().Load("b"); err != nil || value != "second" {
			t.Errorf("%s: %q, %v, want the other value", place, value, err)
		}
		if _, err := open().Load("c"); !errors.Is(err, agent.ErrNoSecret) {
			t.Errorf("%s: %v, want ErrNoSecret", place, err)
		}
	}
	if _, err := agent.OpenSecrets("pocket", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "pocket") {
		t.Errorf("another place: %v", err)
	}
	keyring.MockInitWithError(errors.New("no bus"))
	if agent.HasKeyring() {
		t.Error("a keyring that does not work is used")
	}
}

// TestEncryptedSecrets: the file shows nothing, belongs to its owner, and opens with the passphrase only.
func TestEncryptedSecrets(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	open := func(passphrase string) agent.Secrets {
		t.Helper()
		secrets, err := agent.OpenSecrets(agent.PlaceEncrypted, folder, func() (string, error) { return passphrase, nil })
		testkit.NoError(t, err)
		return secrets
	}
	testkit.NoError(t, open("right").Save("name of it", "value of it"))
	file := filepath.Join(folder, "secrets.age")
	content, err := os.ReadFile(file)
	if err != nil || bytes.Contains(content, []byte("of it")) {
		t.Errorf("the file is readable: %q, %v", content, err)
	}
	if mode, err := os.Stat(file); err != nil || mode.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v, want 0600", mode.Mode(), err)
	}
	if _, err := open("wrong").Load("name of it"); err == nil || strings.Contains(err.Error(), "wrong\"") {
		t.Errorf("another passphrase: %v", err)
	}
	if err := open("wrong").Save("name of it", "x"); err == nil {
		t.Error("the file was replaced without its passphrase")
	}
	if value, err := open("right").Load("name of it"); err != nil || value != "value of it" {
		t.Errorf("%q, %v", value, err)
	}
}
