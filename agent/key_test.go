package agent_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestKeyReplacedMeanwhile: a call whose API key another process replaces before its request arrives is made again with the new key. Each
// is paid once, also if the other process dies before it has the new key.
func TestKeyReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"the other process lives": false, "the other process dies": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			alice, of := w.register("alice")
			other := w.open(of)
			var once sync.Once
			var losing atomic.Bool
			var died func()
			w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.URL.Path == "/agent/me" {
					once.Do(func() {
						losing.Store(dies)
						ctx, kill := context.WithCancel(t.Context())
						defer kill()
						died = kill
						_, err := other.Call(ctx, "rotateKey", nil, agent.CallOptions{})
						losing.Store(false)
						if _, open := errors.AsType[*agent.OpenError](err); open != dies {
							t.Errorf("the key was not replaced as the test wants: %v", err)
						}
					})
				}
				if r.URL.Path == "/agent/rotate_key" && losing.Load() {
					agenttest.LoseResponse(rw, r, next)
					died()
					return
				}
				next.ServeHTTP(rw, r)
			})
			before := w.Revenue()
			if _, err := alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{}); err != nil {
				t.Fatal(err)
			}
			if paid, want := w.Revenue()-before, testkit.Price("GET /agent/me")+testkit.Price("POST /agent/rotate_key"); paid != want {
				t.Errorf("%d were paid, want %d", paid, want)
			}
		})
	}
}
