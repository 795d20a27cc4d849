//go:build linux && !noserver

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/x402"
)

// liar is a server in front of parley dev. Once lie is set, that handles the requests, and may pass them on.
type liar struct {
	*httptest.Server
	lie atomic.Pointer[func(w http.ResponseWriter, r *http.Request, pass http.Handler)]
}

func newLiar(t *testing.T) *liar {
	t.Helper()
	l := &liar{}
	l.Server = inFrontOf(t, playServer(t).URL, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if lie := l.lie.Load(); lie != nil {
			(*lie)(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	})
	return l
}

// tell lets the server lie in its responses to paid requests of a path, or of all paths if it is "". nil ends that.
func (l *liar) tell(path string, lie func(w http.ResponseWriter)) {
	if lie == nil {
		l.lie.Store(nil)
		return
	}
	handler := func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Header.Get(x402.HeaderPaymentSignature) != "" && (path == "" || r.URL.Path == path) {
			lie(w)
			return
		}
		pass.ServeHTTP(w, r)
	}
	l.lie.Store(&handler)
}

func text(text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
}

// TestServerDrivesNoTerminal: the username that a server returns for the account reaches a terminal with every character seen.
func TestServerDrivesNoTerminal(t *testing.T) {
	t.Parallel()
	server := newLiar(t)
	alice := newAgent(t, server.URL, "alice")
	server.tell("/agent/me", text(`{"agent_id":"agent_1","username":"\u001b]0;pwned\u0007\u009b31m","chat_ids":[],"description":"",
		"is_discoverable":true,"created_at":1,"chat_count":0,"subscribed_channel_count":0,"subscribed_channel_ids":[],
		"administered_channel_ids":[]}`))
	for _, command := range [][]string{{"profile"}, {"status"}, {"init"}, {"status", "--jq", ".username"}} {
		screen, err := alice.atTerminal("y\n", command...)
		if err != nil || screen == "" {
			t.Errorf("%v: %v\n%s", command, err, screen)
		}
		for _, bad := range []string{"\x1b", "\x07", "\u009b"} {
			if strings.Contains(screen, bad) {
				t.Errorf("%v: the screen gets %q: %q", command, bad, screen)
			}
		}
	}
}
