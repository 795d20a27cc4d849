//go:build linux && !noserver

package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/x402"
)

// liar returns the URL of a server that lies in its paid responses to a path, once it is told what to say.
func liar(t *testing.T, path string) (address string, lie *atomic.Pointer[string]) {
	t.Helper()
	target, err := url.Parse(playServer(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	honest := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	lie = &atomic.Pointer[string]{}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := lie.Load(); text != nil && r.URL.Path == path && r.Header.Get(x402.HeaderPaymentSignature) != "" {
			_, _ = w.Write([]byte(*text))
			return
		}
		honest.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL, lie
}

// TestServerDrivesNoTerminal: the username that a server returns for the account reaches a terminal with every character seen.
func TestServerDrivesNoTerminal(t *testing.T) {
	t.Parallel()
	address, lie := liar(t, "/agent/me")
	name := `{"success":true,"agent_id":"agent_1","username":"\u001b]0;pwned\u0007\u009b31m","chat_ids":[]}`
	lie.Store(&name)
	alice := newUser(t, address)
	for _, command := range [][]string{{"init", "--username", "alice"}, {"status"}, {"profile"}, {"status", "--jq", ".username"}} {
		screen, err := alice.atTerminal("y\n", nil, command...)
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

// TestBadResponse: a response that is no JSON is paid for once, and the next command is a new one.
func TestBadResponse(t *testing.T) {
	t.Parallel()
	address, lie := liar(t, "/agent/unread")
	alice := newUser(t, address)
	alice.run("init", "--username", "alice", "--yes")
	page := "<html>sign in to the network</html>"
	lie.Store(&page)
	if got := alice.fails(agent.ExitError, "inbox"); got["code"] != "bad_response" || got["charged"] != true ||
		strings.Contains(mustJSON(t, got), "html") {
		t.Errorf("the error is %v", got)
	}
	lie.Store(nil)
	if got := alice.run("inbox"); got["earlier"] != nil || got["paid_usd"] != "0.001" {
		t.Errorf("the next command returns %v", got)
	}
	alice.run("inbox", "--cached")
}
