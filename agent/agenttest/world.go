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
	front atomic.Pointer[Front]
}

// Front sees requests first. The server is next.
type Front func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Answer lets a front answer each request of an agent, or the server if it is nil.
func (w *World) Answer(front Front) { w.front.Store(&front) }

// AnswerPaid lets a front answer the requests with a payment.
func (w *World) AnswerPaid(front Front) {
	w.Answer(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Header.Get(x402.HeaderPaymentSignature) == "" {
			next.ServeHTTP(rw, r)
			return
		}
		front(rw, r, next)
	})
}

// LoseResponse is a [Front] that hangs up when the server has responded.
func LoseResponse(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	testkit.HangUp(w)
}

// New starts a server until the test ends.
func New(t *testing.T, settings ...func(*server.Config)) *World {
	t.Helper()
	w := &World{World: testkit.NewWorld(t, storetest.URL(t))}
	stored, err := store.Open(t.Context(), w.DatabaseURL, storetest.Patient)
	testkit.NoError(t, err)
	facilitator := httptest.NewServer(w.Facilitator)
	w.Chain = &x402.Chain{URL: facilitator.URL + "/rpc", HTTPClient: facilitator.Client()}
	front := httptest.NewUnstartedServer(nil)
	config := server.Config{
		BaseURL: "http://" + front.Listener.Addr().String(), Network: testkit.PlayMoney, PayTo: devnet.Payee, FacilitatorURL: facilitator.URL,
		Secrets: []server.Secret{{1}},
	}
	for _, set := range settings {
		set(&config)
	}
	client := &x402.Facilitator{BaseURL: facilitator.URL, HTTPClient: facilitator.Client()}
	parley, err := server.New(config, stored, client, w.Chain, slog.New(slog.DiscardHandler))
	testkit.NoError(t, err)
	handler := parley.Handler()
	front.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if front := w.front.Load(); front != nil && *front != nil {
			(*front)(rw, r, handler)
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
func (w *World) Open(folder string, signer x402.Signer, chain agent.Chain, changes ...func(*agent.Settings)) *agent.Agent {
	w.T.Helper()
	secrets, err := agent.OpenSecrets(agent.PlaceFile, folder)
	testkit.NoError(w.T, err)
	settings := agent.Settings{
		Folder: folder, Signer: signer, Secrets: secrets, Networks: []x402.Network{testkit.PlayMoney}, Transport: &http.Transport{}, Chain: chain,
	}
	for _, change := range changes {
		change(&settings)
	}
	a, err := agent.Open(settings)
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
