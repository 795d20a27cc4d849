package agent_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402"
)

// world is a server that takes play money.
type world struct {
	*testkit.World
	url   string
	chain *x402.Chain
	// front, if set, sees each request of an agent first.
	front atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

// withChannels offers payment channels.
func withChannels(config *server.Config) {
	config.Channels = channel.Config{
		Authorizer: authorizer, WithdrawDelay: 24 * time.Hour, MinDeposit: testkit.Dollar, ClaimAge: 6 * time.Hour, ClaimSum: testkit.Dollar,
	}
}

var authorizer = testkit.NewKey()

func newWorld(t *testing.T, settings ...func(*server.Config)) *world {
	t.Helper()
	w := &world{World: testkit.NewWorld(t, storetest.URL(t))}
	stored, err := store.Open(t.Context(), w.DatabaseURL, store.Serving)
	if err != nil {
		t.Fatal(err)
	}
	facilitator := httptest.NewServer(w.Facilitator)
	w.chain = &x402.Chain{URL: facilitator.URL + "/rpc"}
	front := httptest.NewUnstartedServer(nil)
	config := server.Config{
		BaseURL: "http://" + front.Listener.Addr().String(), Network: testkit.PlayMoney, PayTo: devnet.Payee, FacilitatorURL: facilitator.URL,
		ResponseKeys: []payment.ResponseKey{{1}},
	}
	for _, set := range settings {
		set(&config)
	}
	parley, err := server.New(config, stored, &x402.Facilitator{BaseURL: facilitator.URL}, w.chain, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler := parley.Handler()
	front.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if before := w.front.Load(); before != nil {
			(*before)(rw, r, handler)
			return
		}
		handler.ServeHTTP(rw, r)
	})
	front.Start()
	w.url = front.URL
	t.Cleanup(func() {
		front.Close()
		facilitator.Close()
		stored.Close()
	})
	return w
}

// charged is what all delivered payments cost, in atomic units.
func (w *world) charged() (sum uint64) {
	w.T.Helper()
	w.Scan("SELECT coalesce(sum(amount), 0)::bigint FROM payments WHERE state = 'delivered'", nil, &sum)
	return sum
}

// wallet is what survives a crash of an agent: its key and its folder.
type wallet struct {
	signer x402.Signer
	folder string
}

func (w *world) wallet() wallet {
	w.T.Helper()
	return wallet{x402.NewKeySigner(w.Wallet(100 * testkit.Dollar)), w.T.TempDir()}
}

// open opens the agent of a wallet, as a new process does.
func (w *world) open(of wallet) *agent.Agent {
	w.T.Helper()
	return w.openWith(of, nil)
}

// openWith is open with a blockchain that the agent asks.
func (w *world) openWith(of wallet, chain agent.Chain) *agent.Agent {
	w.T.Helper()
	secrets, err := agent.OpenSecrets(agent.PlaceFile, of.folder, nil)
	if err != nil {
		w.T.Fatal(err)
	}
	a, err := agent.Open(agent.Settings{
		Folder: of.folder, Signer: of.signer, Secrets: secrets, Networks: []x402.Network{testkit.PlayMoney}, Transport: &http.Transport{},
		Chain: chain,
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(a.Close)
	return a
}

// register returns the agent of a new wallet that has an account. A person approves the price.
func (w *world) register(name string) (*agent.Agent, wallet) {
	w.T.Helper()
	of := w.wallet()
	return w.registerAs(of, name), of
}

func (w *world) registerAs(of wallet, name string) *agent.Agent {
	w.T.Helper()
	a := w.open(of)
	terms, err := a.Terms(w.T.Context(), w.url, "")
	if err != nil {
		w.T.Fatal(err)
	}
	if err := a.Agree(terms, false); err != nil {
		w.T.Fatal(err)
	}
	generous := agent.Limits{PerCall: testkit.Dollar, PerDay: 10 * testkit.Dollar, Polls: testkit.Dollar}
	if err := a.Ledger().SetLimits(w.T.Context(), generous, true); err != nil {
		w.T.Fatal(err)
	}
	if _, err := a.Register(w.T.Context(), name, "I am "+name+"."); err != nil {
		w.T.Fatal(err)
	}
	return a
}
