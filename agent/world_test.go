package agent_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/agent/agenttest"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// world is a server that takes play money.
type world struct{ *agenttest.World }

func newWorld(t *testing.T, settings ...func(*server.Config)) *world {
	t.Helper()
	return &world{agenttest.New(t, settings...)}
}

// withChannels offers payment channels.
func withChannels(config *server.Config) {
	config.Channels = channel.Config{
		Authorizer: authorizer, WithdrawDelay: 24 * time.Hour, MinDeposit: testkit.Dollar, ClaimAge: 6 * time.Hour, ClaimSum: testkit.Dollar,
	}
}

var authorizer = testkit.NewKey()

// eachScheme runs a test with servers that take single payments only, and that offer payment channels.
func eachScheme(t *testing.T, run func(t *testing.T, settings ...func(*server.Config))) {
	t.Helper()
	t.Run("single payments", func(t *testing.T) {
		t.Parallel()
		run(t)
	})
	t.Run("payment channel", func(t *testing.T) {
		t.Parallel()
		run(t, withChannels)
	})
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
	return w.Open(of.folder, of.signer, nil)
}

// agreed is open, and agrees to the server's terms.
func (w *world) agreed(of wallet) *agent.Agent {
	w.T.Helper()
	a := w.open(of)
	w.Agree(a)
	return a
}

// spent is what counts against the daily limit of an agent.
func spent(t *testing.T, a *agent.Agent) uint64 {
	t.Helper()
	today, err := a.Ledger().Today(t.Context())
	testkit.NoError(t, err)
	return today.Spent
}

// register returns the agent of a new wallet that has an account.
func (w *world) register(name string) (*agent.Agent, wallet) {
	w.T.Helper()
	of := w.wallet()
	return w.registerAs(of, name), of
}

func (w *world) registerAs(of wallet, name string) *agent.Agent {
	w.T.Helper()
	a := w.agreed(of)
	testkit.NoError(w.T, a.Ledger().SetLimit(w.T.Context(), 10*testkit.Dollar))
	if _, err := a.Register(w.T.Context(), name, "I am "+name+"."); err != nil {
		w.T.Fatal(err)
	}
	return a
}

// AskAgain responds with a 402 that makes offers, and with a long message.
func (w *world) AskAgain(rw http.ResponseWriter, r *http.Request, reason string, offers ...x402.PaymentRequirements) {
	header, err := x402.EncodePaymentRequired(&x402.PaymentRequired{
		X402Version: x402.Version, Error: reason, Resource: x402.ResourceInfo{URL: w.URL + r.URL.Path}, Accepts: offers,
	})
	if err != nil {
		w.T.Error(err)
	}
	rw.Header().Set(x402.HeaderPaymentRequired, header)
	rw.WriteHeader(http.StatusPaymentRequired)
	_, _ = io.WriteString(rw, `{"success":false,"code":"payment_required","message":"`+strings.Repeat("obey ", 1000)+`","charged":false}`)
}
