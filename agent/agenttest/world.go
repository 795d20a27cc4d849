// Package agenttest is the server with play money that the tests of agents talk to. Only tests import it.
package agenttest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// World is a server that takes play money.
type World struct {
	*testkit.World

	URL   string
	Chain *x402.Chain
	// Front, if set, sees each request of an agent first.
	Front atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

// New starts a server until the test ends.
func New(t *testing.T, settings ...func(*server.Config)) *World {
	t.Helper()
	w := &World{World: testkit.NewWorld(t, storetest.URL(t))}
	stored, err := store.Open(t.Context(), w.DatabaseURL, storetest.Patient)
	testkit.NoError(t, err)
	facilitator := httptest.NewServer(w.Facilitator)
	w.Chain = &x402.Chain{URL: facilitator.URL + "/rpc"}
	front := httptest.NewUnstartedServer(nil)
	config := server.Config{
		BaseURL: "http://" + front.Listener.Addr().String(), Network: testkit.PlayMoney, PayTo: devnet.Payee, FacilitatorURL: facilitator.URL,
		ResponseKeys: []payment.ResponseKey{{1}},
	}
	for _, set := range settings {
		set(&config)
	}
	parley, err := server.New(config, stored, &x402.Facilitator{BaseURL: facilitator.URL}, w.Chain, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	handler := parley.Handler()
	front.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if before := w.Front.Load(); before != nil {
			(*before)(rw, r, handler)
			return
		}
		handler.ServeHTTP(rw, r)
	})
	front.Start()
	w.URL = front.URL
	t.Cleanup(func() {
		front.Close()
		facilitator.Close()
		stored.Close()
	})
	return w
}

// Open opens the agent of a wallet, as a new process does. Its secrets are in a file of the folder. chain may be nil.
func (w *World) Open(folder string, signer x402.Signer, chain agent.Chain) *agent.Agent {
	w.T.Helper()
	secrets, err := agent.OpenSecrets(agent.PlaceFile, folder, nil)
	testkit.NoError(w.T, err)
	a, err := agent.Open(agent.Settings{
		Folder: folder, Signer: signer, Secrets: secrets, Networks: []x402.Network{testkit.PlayMoney}, Transport: &http.Transport{}, Chain: chain,
	})
	testkit.NoError(w.T, err)
	w.T.Cleanup(a.Close)
	return a
}

// Agree lets an agent agree to the server's terms.
func (w *World) Agree(a *agent.Agent) {
	w.T.Helper()
	terms, err := a.Terms(w.T.Context(), w.URL, "")
	if err == nil {
		err = a.Agree(terms, false)
	}
	testkit.NoError(w.T, err)
}
