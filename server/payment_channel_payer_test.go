package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// crashing is a transport that loses the first response with status 200 from a path, if the path is set.
type crashing struct {
	w    *world
	mu   sync.Mutex
	path string
}

func (c *crashing) RoundTrip(r *http.Request) (*http.Response, error) {
	if payment := r.Header.Get(x402.HeaderPaymentSignature); payment != "" {
		c.w.Secret(payment)
	}
	response, err := c.w.http.Transport.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.URL.Path != c.path {
		return response, nil
	}
	c.path = ""
	_ = response.Body.Close()
	return nil, errors.New("the response was lost")
}

// payerAgent is an agent whose calls a client.Payer pays, with its payment channels in a folder.
type payerAgent struct {
	*client.ClientWithResponses
	w         *world
	key       string // API key
	wallet    string
	folder    string
	transport *crashing
	payer     *client.Payer
	spent     uint64 // by payers of ended processes
}

func (w *world) payerAgent() *payerAgent {
	w.T.Helper()
	a := &payerAgent{w: w, wallet: fmt.Sprintf("%x", evm.FromECDSA(w.Wallet(10*testkit.Dollar))), folder: w.T.(*testing.T).TempDir(),
		transport: &crashing{w: w}}
	a.restart()
	return a
}

// restart is a new process with the same folder.
func (a *payerAgent) restart() {
	a.w.T.Helper()
	stored, err := client.NewFileChannels(a.folder)
	testkit.NoError(a.w.T, err)
	if a.payer != nil {
		a.spent += a.payer.Spent()
	}
	if a.payer, err = client.NewPayer(a.wallet, client.Limits{PerCall: testkit.Dollar, Total: 10 * testkit.Dollar}); err != nil {
		a.w.T.Fatal(err)
	}
	a.payer.Base, a.payer.Channels.Store, a.payer.Patience = a.transport, stored, 1
	a.ClientWithResponses, err = client.New(a.w.url, a.payer, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		if a.key != "" {
			r.Header.Set("X-API-KEY", a.key)
		}
		return nil
	}))
	testkit.NoError(a.w.T, err)
}

// crash makes a call that the process does not survive, and starts the next process.
func (a *payerAgent) crash(path string, call func() error) {
	a.w.T.Helper()
	a.transport.path = path
	if err := call(); err == nil {
		a.w.T.Errorf("the call of %s did not crash", path)
	}
	a.restart()
}

func (a *payerAgent) register(name string) {
	a.w.T.Helper()
	ctx, reserve := a.w.T.Context(), client.RequestAccountRequest{RequestedUsername: name}
	a.crash("/register/request_account", func() error { _, err := a.RequestAccountWithResponse(ctx, reserve); return err })
	reserved, err := a.RequestAccountWithResponse(ctx, reserve)
	if err != nil || reserved.JSON200 == nil {
		a.w.T.Fatalf("request an account: %v %s", err, reserved.Body)
	}
	account := client.CreateAccountRequest{Username: name, TAN: reserved.JSON200.TAN, Description: "I crash."}
	a.crash("/register/create_account", func() error { _, err := a.CreateAccountWithResponse(ctx, account); return err })
	created, err := a.CreateAccountWithResponse(ctx, account)
	if err != nil || created.JSON200 == nil {
		a.w.T.Fatalf("create an account: %v %s", err, created.Body)
	}
	a.key = created.JSON200.APIKey
	a.w.Secret(reserved.JSON200.TAN, a.key)
}

// TestPayerPaysFromChannels: an agent registers, replaces its key and calls with vouchers; its process ends during each call that
// returns a secret. Nothing is charged twice, and what is not charged comes back.
func TestPayerPaysFromChannels(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, suggesting(testkit.Dollar))
	a := w.payerAgent()
	a.register("alice")
	ctx := t.Context()
	a.crash("/agent/rotate_key", func() error { _, err := a.RotateKeyWithResponse(ctx, client.RotateKeyRequest{}); return err })
	rotated, err := a.RotateKeyWithResponse(ctx, client.RotateKeyRequest{})
	if err != nil || rotated.JSON200 == nil {
		t.Fatalf("replace the key: %v %s", err, rotated.Body)
	}
	a.key = rotated.JSON200.APIKey
	w.Secret(a.key)
	for range 5 {
		if me, err := a.GetOwnAgentWithResponse(ctx); err != nil || me.JSON200 == nil {
			t.Fatalf("a call: %v %s", err, me.Body)
		}
	}
	const cost = 1_000_000 + 2000 + 5*1000
	if n := w.Count(`SELECT charged FROM payment_channels`); n != cost {
		t.Errorf("%d were charged, want %d", n, cost)
	}
	if n := w.Count(`SELECT count(*) FROM payments WHERE scheme = 'exact'`); n != 0 {
		t.Errorf("%d calls were paid with transfers, want 0", n)
	}
	if refunded, err := a.payer.Refund(ctx, w.url+"/agent/me", a.key); err != nil || refunded != 2*testkit.Dollar-cost {
		t.Errorf("refunded %d, %v, want %d", refunded, err, 2*testkit.Dollar-cost)
	}
	if diff := cmp.Diff(uint64(10*testkit.Dollar-cost), w.Ledger.Balance(a.payer.Address())); diff != "" {
		t.Errorf("the wallet's balance (-want +got):\n%s", diff)
	}
	w.checkChannels()
}

// TestRestartedClientGetsItsSecret: a client that lost the state of its payment channel, and the response with a TAN, is shown how to
// go on, and gets the TAN with a deposit or a transfer that is not settled.
func TestRestartedClientGetsItsSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	const path = "/register/request_account"
	wallet := w.Wallet(testkit.Dollar)
	payer := w.channelPayer(wallet)
	ask := func(name, payment string) testkit.Reply {
		return w.call(http.MethodPost, path, `{"requested_username":`+quote(name)+`}`, x402.HeaderPaymentSignature, payment)
	}
	w.Secret(ask("carol", payer.sign(path, 10_000, 100_000)).Field(t, "tan"))
	first := ask("dave", payer.sign(path, 20_000, 0))
	w.Secret(first.Field(t, "tan"))
	if reason, state, _ := correctionOf(t, ask("dave", payer.sign(path, 10_000, 0))); reason != x402.ReasonBatchCumulativeMismatch ||
		state.ChargedCumulativeAmount != "20000" {
		t.Errorf("an earlier voucher: %s, charged %s", reason, state.ChargedCumulativeAmount)
	}
	if a := ask("dave", payer.sign(path, 10_000, 50_000)); string(a.Body) != string(first.Body) {
		t.Errorf("a deposit, which proves the wallet: %v, want the stored response", a)
	}
	if required := w.price(path); required.Accepts[0].Scheme != x402.SchemeExact {
		t.Errorf("%s is offered first", required.Accepts[0].Scheme)
	}
	again := w.pay(wallet, path, `{"requested_username":"dave"}`)
	if string(again.Body) != string(first.Body) || w.Revenue() != 0 {
		t.Errorf("a transfer by the wallet: %v, %d settled, want the stored response free of charge", again, w.Revenue())
	}
	w.checkChannels()
}

// TestRefundAfterALostState: a client that has lost what it knew of its payment channel gets back what is not charged, also after a claim.
func TestRefundAfterALostState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels, suggesting(testkit.Dollar))
	a := w.payerAgent()
	a.register("alice")
	w.due()
	if !w.recoverUntil(func() bool { return w.Count("SELECT claimed FROM payment_channels") > 0 }) {
		t.Fatal("nothing is claimed")
	}
	me, err := a.GetOwnAgentWithResponse(t.Context()) // a voucher that is not claimed
	if err != nil || me.JSON200 == nil {
		t.Fatalf("a call: %v %s", err, me.Body)
	}
	a.folder = t.TempDir()
	a.restart()
	want := 2*testkit.Dollar - w.Count("SELECT charged FROM payment_channels")
	refunded, err := a.payer.Refund(t.Context(), w.url+"/agent/me", a.key)
	deposited, unknown := a.payer.Deposited()
	if int(refunded) != want || deposited != 0 || errors.Join(err, unknown) != nil { //nolint:gosec // fits
		t.Errorf("refunded %d, %v, want %d; %d are deposited, %v", refunded, err, want, deposited, unknown)
	}
}
