package agent_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestSecrets: every place returns what it got, also after it is opened again, and says what it does not have.
func TestSecrets(t *testing.T) { //nolint:paralleltest // the library's mock is global
	keyring.MockInit()
	for _, place := range []string{agent.PlaceKeyring, agent.PlaceFile} {
		folder := t.TempDir()
		open := func() agent.Secrets {
			t.Helper()
			secrets, err := agent.OpenSecrets(place, folder)
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
	if _, err := agent.OpenSecrets("pocket", t.TempDir()); err == nil || !strings.Contains(err.Error(), "pocket") {
		t.Errorf("another place: %v", err)
	}
	keyring.MockInitWithError(errors.New("no bus"))
	if agent.HasKeyring() {
		t.Error("a keyring that does not work is used")
	}
}
