package agent_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/server"
)

// TestServerErrorIsNamed: the error of a call whose outcome is not known says what the server responded.
func TestServerErrorIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, _ := w.register("alice")
	w.AnswerPaid(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
		rw.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(rw, `{"success":false,"code":"internal_error","message":"internal error","request_id":"req-7"}`)
	})
	_, err := alice.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{Patience: 10 * time.Second})
	if agent.CodeOf(err) != "outcome_open" ||
		!strings.Contains(err.Error(), "internal error (status 500, request_id req-7)") {
		t.Errorf("a server that fails: %v", err)
	}
}

// TestUnreachable: a payment that was not sent because the connection was refused is neither open nor counted.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	eachScheme(t, func(t *testing.T, settings ...func(*server.Config)) {
		w := newWorld(t, settings...)
		_, of := w.register("alice")
		alice := w.away(of)
		before := spent(t, alice)
		_, err := alice.Call(t.Context(), "searchAgents", map[string]any{"query": "x"}, agent.CallOptions{})
		if _, ok := errors.AsType[*client.UnreachableError](err); !ok ||
			!strings.HasSuffix(err.Error(), "could not reach "+w.URL+" (connection refused); nothing was sent") {
			t.Errorf("the error is %v", err)
		}
		after := spent(t, alice)
		if open, err := alice.Ledger().Open(); err != nil || len(open) != 0 || settings == nil && after != before {
			t.Errorf("%d payments are open, %d was spent and is %d now (%v)", len(open), before, after, err)
		}
		paid := w.charged()
		call(t, w.open(of), "searchAgents", map[string]any{"query": "x"})
		if counts := spent(t, alice) - before; w.charged()-paid != 5000 || counts != 5000 {
			t.Errorf("when the server is back, %d is paid and %d counts", w.charged()-paid, counts)
		}
	})
}

// away opens the agent of a wallet, whose server refuses connections.
func (w *world) away(of wallet) *agent.Agent {
	w.T.Helper()
	return w.Open(of.folder, of.signer, nil, func(settings *agent.Settings) {
		settings.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)} // others may use a free port
		}}
	})
}
