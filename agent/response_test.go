package agent_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/server"
)

// TestProxyAnswers: a response that cannot be Parley's, whatever its status, leaves the outcome open. The same call sends the same payment
// again: it is paid once and has one effect. A response with the fields of the contract and other values is over.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	eachScheme(t, testProxyAnswers)
}

func testProxyAnswers(t *testing.T, settings ...func(*server.Config)) {
	t.Helper()
	w := newWorld(t, settings...)
	alice, _ := w.register("alice")
	w.register("bob")
	bob, err := alice.Resolve(t.Context(), "bob")
	testkit.NoError(t, err)
	hello := map[string]any{"recipient_agent_id": bob.ID, "content": "hello"}
	before := w.charged()
	for _, page := range []string{
		"200 <html>sign in to the network</html>", "200 []", "200 ", "200 null", "200 {}", `200 {"status":"ok"}`, `200 {"success":false}`,
		`200 {"success":false,"chat_id":"","message_id":"","message":""}`, `201 {"success":true}`, "204 ", "302 <html>",
		"403 <html>forbidden</html>", `404 {"code":"not_found"}`, `402 {"charged":false}`, `409 {"code":5,"charged":"no"}`,
	} {
		w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			status, _ := strconv.Atoi(page[:3])
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(page[4:]))
		})
		_, err = alice.Call(t.Context(), "sendPrivateMessage", hello, agent.CallOptions{Patience: time.Second})
		if f := alice.Explain(t.Context(), err); f.Code != "outcome_open" || f.Charged != nil || strings.Contains(err.Error(), "html") {
			t.Errorf("%q: %v, want an open outcome", page, err)
		}
	}
	w.Answer(nil)
	call(t, alice, "sendPrivateMessage", hello)
	if paid, messages := w.charged()-before, w.Count("SELECT count(*) FROM messages"); paid != 5000 || messages != 1 {
		t.Errorf("%d was paid for %d messages, want 5000 for one", paid, messages)
	}
	w.AnswerPaid(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		_, _ = rw.Write([]byte(`{"agent_id": 5, "username": "carol", "is_discoverable": true, "message": ""}`))
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
