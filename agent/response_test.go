package agent_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestProxyAnswers: a page of a proxy with the status 200 leaves the outcome open. The same call sends the same payment again: it is
// paid once and has one effect. A response that is JSON and not as the contract says is over.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.register("bob")
	bob, err := alice.Resolve(t.Context(), "bob")
	testkit.NoError(t, err)
	hello := map[string]any{"recipient_agent_id": bob.ID, "content": "hello"}
	before := w.Revenue()
	for _, page := range []string{"<html>sign in to the network</html>", "[]", "", "null"} {
		w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			_, _ = rw.Write([]byte(page))
		})
		_, err = alice.Call(t.Context(), "sendPrivateMessage", hello, agent.CallOptions{Patience: time.Second})
		if agent.CodeOf(err) != "outcome_open" || strings.Contains(err.Error(), "html") {
			t.Errorf("%q: %v, want an open outcome", page, err)
		}
	}
	w.Answer(nil)
	call(t, alice, "sendPrivateMessage", hello)
	if paid, messages := w.Revenue()-before, w.Count("SELECT count(*) FROM messages"); paid != 5000 || messages != 1 {
		t.Errorf("%d was paid for %d messages, want 5000 for one", paid, messages)
	}
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		_, _ = rw.Write([]byte(`{"agent_id": 5}`))
	})
	_, err = alice.Resolve(t.Context(), "carol")
	if agent.CodeOf(err) != "bad_response" || !strings.Contains(err.Error(), "(0.001 USD)") {
		t.Errorf("a lookup returns %v", err)
	}
	// The arguments of a call are not in the error of a payment whose outcome is not known.
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) { panic(http.ErrAbortHandler) })
	_, err = alice.Call(t.Context(), "listUnreadMessages", map[string]any{"page_size": 77}, agent.CallOptions{Patience: time.Second})
	if agent.CodeOf(err) != "outcome_open" || strings.Contains(err.Error(), "page_size") {
		t.Errorf("the error is %v", err)
	}
}
