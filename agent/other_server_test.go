package agent_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestOtherServerGetsNoKey: an API key is a secret of the server whose account it opens. A second server that a person agrees to does
// not get it, and back at the first one the account is there.
func TestOtherServerGetsNoKey(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	alice, _ := w.register("alice")
	var keys atomic.Int64
	other.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get("X-API-KEY") != "" {
			keys.Add(1)
		}
		next.ServeHTTP(rw, r)
	})
	agree := func(to *world, want bool) {
		t.Helper()
		terms, err := alice.Terms(t.Context(), to.URL, "")
		testkit.NoError(t, err)
		testkit.NoError(t, alice.Agree(terms, true))
		if has, err := alice.HasAccount(); err != nil || has != want {
			t.Errorf("the wallet has an account there: %t (%v), want %t", has, err, want)
		}
	}
	agree(other, false)
	_, _ = alice.Register(t.Context(), "alice", "x") // the wallet has no money there
	if _, err := alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{}); err == nil {
		t.Error("a call without an account succeeds")
	}
	if n := keys.Load(); n > 0 {
		t.Errorf("the second server got an API key %d times", n)
	}
	agree(w, true)
}
