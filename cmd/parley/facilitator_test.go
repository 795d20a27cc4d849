//go:build !noserver

package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// inFrontOf starts a server whose handler may pass requests on to another one.
func inFrontOf(t *testing.T, server string, handle func(w http.ResponseWriter, r *http.Request, pass http.Handler)) *httptest.Server {
	t.Helper()
	target, err := url.Parse(server)
	testkit.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle(w, r, proxy) }))
	t.Cleanup(front.Close)
	return front
}

// guarded puts a hosted facilitator in front of the play-money network: it serves only requests that allowed accepts, and counts
// them by endpoint.
func guarded(t *testing.T, play string, allowed func(*http.Request) bool) (facilitatorURL string, served *sync.Map) {
	t.Helper()
	served = &sync.Map{}
	front := inFrontOf(t, play, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !allowed(r) {
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		served.Store(r.Method+" "+r.URL.Path, true)
		pass.ServeHTTP(w, r)
	})
	return front.URL, served
}

// TestFacilitatorCredentials: a server pays through a facilitator that asks for a token in each request: one that does not change, or
// one that the server signs with an API key. No credential is in the log.
func TestFacilitatorCredentials(t *testing.T) {
	t.Parallel()
	play := playNetwork(t)
	private := ed25519.NewKeyFromSeed([]byte("thirty-two bytes of a test's key"))
	secret := base64.StdEncoding.EncodeToString(private)
	file := writeFile(t, "the-id:"+secret+"\n")
	for name, test := range map[string]struct {
		settings []string
		allowed  func(*http.Request) bool
	}{
		"token": {[]string{"--facilitator-key=hunter2"}, func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer hunter2" }},
		"API key": {[]string{"--facilitator-key=file:" + file}, func(r *http.Request) bool {
			claims := jwt.MapClaims{}
			_, err := jwt.ParseWithClaims(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), claims,
				func(*jwt.Token) (any, error) { return private.Public(), nil }, jwt.WithSubject("the-id"))
			uris, _ := claims["uris"].([]any)
			return err == nil && len(uris) == 1 && uris[0] == r.Method+" "+r.Host+r.URL.Path
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			front, served := guarded(t, play.URL, test.allowed)
			server := start(
				t,
				[]string{"PARLEY_DATABASE_URL=" + storetest.URL(t), "PARLEY_PAYEE=" + devnet.Payee, "PARLEY_NETWORK=" + x402.NetworkBaseSepolia},
				append([]string{"serve", "--facilitator-url", front, "--rpc-url", play.URL + "/rpc", "--listen", testkit.FreeAddress(t),
					"--authorizer-key", devnet.Accounts()[5].PrivateKey}, test.settings...)...)
			server.register(t, 2, "carol")
			for _, call := range []string{"GET /supported", "POST /settle"} {
				eventually(t, "the facilitator serves "+call, func() bool { // the server asks what it supports in the background
					_, ok := served.Load(call)
					return ok
				})
			}
			for _, credential := range []string{"hunter2", secret, "Bearer"} {
				if strings.Contains(server.logs.String(), credential) {
					t.Errorf("the log contains %s", credential)
				}
			}
		})
	}
}
